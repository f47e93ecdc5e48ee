// The real program, started as a user starts it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace spyre::system_test {

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;  // added to the environment

struct Outcome {
  int code = -1;  // exit code, or 128 + the signal that ended it
  std::string out, err;

  // |out| as JSON; a test failure and null when it is none or the program failed.
  nlohmann::json json() const;
  int error_lines() const;
};

// A running program. Its output goes to files, so that it never waits for a reader.
class Program {
 public:
  explicit Program(const Arguments& arguments, const Variables& variables = {}, const std::string& stdout_path = "");
  ~Program();  // ends it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string written() const;  // to stdout so far
  void signal(int number) const;
  bool running();
  Outcome wait();

 private:
  std::filesystem::path folder_;
  std::string stdout_path_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

Outcome run(const Arguments& arguments, const Variables& variables = {});

std::string read_file(const std::filesystem::path& path);  // "" when it cannot be read

// A folder of tests/golden/data.
std::string golden(const std::string& name);
// The first |count| ids of the prompt that the golden data of |name| was made with: "39,152,181".
std::string prompt_of(const std::string& name, size_t count);

// A folder for the running test, empty at first and removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const;  // its path

 private:
  std::filesystem::path path_;
};

}  // namespace spyre::system_test
