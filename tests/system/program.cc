#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

extern char** environ;

namespace spyre::system_test {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

fs::path make_folder() {
  std::string name = (fs::temp_directory_path() / "spyre_system_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  return name;
}

// The environment without what steers the program, and with |variables|.
std::vector<std::string> environment(const Variables& variables) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("SPYRE_")) out.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

nlohmann::json Outcome::json() const {
  EXPECT_EQ(code, 0) << err;
  nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << out.substr(0, 500);
  return parsed;
}

int Outcome::error_lines() const {
  return static_cast<int>(std::count(err.begin(), err.end(), '\n'));
}

Program::Program(const Arguments& arguments, const Variables& variables, const std::string& stdout_path)
    : folder_(make_folder()), stdout_path_(stdout_path.empty() ? (folder_ / "out").string() : stdout_path) {
  std::vector<std::string> words{SPYRE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> settings = environment(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, stdout_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int failed =
      posix_spawn(&pid_, SPYRE_PROGRAM, &actions, nullptr, pointers(words).data(), pointers(settings).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(std::string("cannot start ") + SPYRE_PROGRAM);
}

Program::~Program() {
  if (running()) {
    signal(SIGKILL);
    wait();
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string Program::written() const {
  return read_file(stdout_path_);
}

void Program::signal(int number) const {
  kill(pid_, number);
}

bool Program::running() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

Outcome Program::wait() {
  if (!ended_) {
    waitpid(pid_, &status_, 0);
    ended_ = true;
  }
  Outcome outcome;
  outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  if (stdout_path_.starts_with(folder_.string())) outcome.out = read_file(stdout_path_);
  outcome.err = read_file(folder_ / "err");
  return outcome;
}

Outcome run(const Arguments& arguments, const Variables& variables) {
  return Program(arguments, variables).wait();
}

std::string golden(const std::string& name) {
  return std::string(SPYRE_GOLDEN_DATA) + "/" + name;
}

std::string prompt_of(const std::string& name, size_t count) {
  const nlohmann::json data = nlohmann::json::parse(read_file(fs::path(golden(name)) / "golden.json"));
  const auto& ids = data.at("prompt_token_ids");
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + ids.at(i).dump();
  return out;
}

ScratchFolder::ScratchFolder() : path_(make_folder()) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
  return (path_ / name).string();
}

}  // namespace spyre::system_test
