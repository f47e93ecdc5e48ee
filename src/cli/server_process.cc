#include "cli/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

extern char** environ;

namespace spyre::cli {
namespace {

constexpr const char* kReady = "spyre: ready: ";

pid_t spawn(const std::vector<std::string>& words, int out) {
  std::vector<std::string> copy = words;
  std::vector<char*> arguments;
  for (std::string& word : copy) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw_error(ErrorCode::kUnavailable, "cannot start a server: {}", std::strerror(failed));
  return pid;
}

}  // namespace

ServerProcess::ServerProcess(const std::string& model, const std::vector<std::string>& flags,
                             const std::atomic<bool>& cancel) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw_error(ErrorCode::kUnavailable, "cannot start a server: {}", std::strerror(errno));
  }
  out_ = ends[0];
  std::vector<std::string> words{"spyre", "serve", model, "--host", "127.0.0.1", "--port", "0"};
  words.insert(words.end(), flags.begin(), flags.end());
  try {
    pid_ = spawn(words, ends[1]);
    close(ends[1]);
    ends[1] = -1;
    wait_ready(cancel);
  } catch (...) {
    if (ends[1] >= 0) close(ends[1]);
    stop();
    throw;
  }
}

ServerProcess::~ServerProcess() {
  stop();
}

void ServerProcess::wait_ready(const std::atomic<bool>& cancel) {
  std::string said;
  for (;;) {
    if (cancel) throw_error(ErrorCode::kCancelled, "interrupted while the server starts");
    pollfd wait{out_, POLLIN, 0};
    if (poll(&wait, 1, 100) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(out_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_error(ErrorCode::kUnavailable, "the server ended before it was ready; its words are above");
    said.append(buffer, static_cast<size_t>(count));
    const size_t line = said.find(kReady);
    if (line == std::string::npos || said.find('\n', line) == std::string::npos) continue;
    const size_t begin = said.find("http://", line);
    url_ = said.substr(begin, said.find(' ', begin) - begin);
    return;
  }
}

void ServerProcess::stop() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    int status = 0;
    for (int i = 0; i < 500 && waitpid(pid_, &status, WNOHANG) == 0; ++i) {
      if (i == 499) {
        kill(pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = -1;
  }
  if (out_ >= 0) close(out_);
  out_ = -1;
}

}  // namespace spyre::cli
