// Modules: the tree that a model is. A Module has a class name, a path, children and parameters; what it computes is a
// method of its class (forward), recorded through a Tracer.
//
// The tree is built once by a model's constructor and is immutable afterwards; reading it from several threads is safe.
// Compilers find blocks in it by structure alone (see find_block_lists), never by a model's name.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/export.h"
#include "nn/parameter.h"

namespace spyre::nn {

class SPYRE_API Module {
 public:
  Module(std::string class_name, std::string path) : class_name_(std::move(class_name)), path_(std::move(path)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& class_name() const { return class_name_; }
  const std::string& path() const { return path_; }
  const std::vector<Module*>& children() const { return children_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }

  // Called on the host, before the values of a parameter go to the device: transpose, pad. |weights| arrives as rows of
  // |parameter.loaded_shape|, all of them or a slice, and leaves as the part of |parameter.type| that they are: rows
  // again, or columns. Called from several threads at once; what becomes of a row must not depend on other rows.
  virtual HostTensor process_weights_after_loading(const Parameter& parameter, HostTensor weights) const;

 protected:
  // Children and parameters are members of the derived class; these only enter them into the tree.
  template <typename M>
  std::unique_ptr<M> child(std::unique_ptr<M> module) {
    children_.push_back(module.get());
    return module;
  }
  Parameter* add_parameter(Parameter parameter);

 private:
  std::string class_name_, path_;
  std::vector<Module*> children_;
  std::vector<Parameter*> parameters_;
  std::vector<std::unique_ptr<Parameter>> owned_parameters_;
};

// A list of modules of one kind, such as a model's decoder layers.
class SPYRE_API ModuleList : public Module {
 public:
  explicit ModuleList(std::string path) : Module("ModuleList", std::move(path)) {}
  void append(std::unique_ptr<Module> module) { modules_.push_back(child(std::move(module))); }
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) const { return *modules_[i]; }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
};

// Depth first, a module before its children.
template <typename Visit>
void walk(const Module& root, Visit&& visit) {
  visit(root);
  for (const Module* child : root.children()) walk(*child, visit);
}

// Block lists: ModuleLists whose entries contain an Attention somewhere and are not Attention layers themselves.
SPYRE_API std::vector<const ModuleList*> find_block_lists(const Module& root);

// The entries of all block lists: what is compiled as a unit, one by one. Empty when nothing matches (the model is then
// one unit).
using BlockSet = std::set<const Module*>;
SPYRE_API BlockSet find_blocks(const Module& root);

}  // namespace spyre::nn
