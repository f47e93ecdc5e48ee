// `spyre serve` as a process of its own, for the commands that measure it from outside: ready when the object is made,
// stopped with it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

namespace spyre::cli {

class ServerProcess {
 public:
  // Serves |model| on a free port of this machine with |flags|, by this very program; what it says on stderr is seen.
  // Throws Error(kUnavailable) when it ends before it is ready, kCancelled soon after |cancel| is set.
  ServerProcess(const std::string& model, const std::vector<std::string>& flags, const std::atomic<bool>& cancel);
  ~ServerProcess();  // SIGTERM, and SIGKILL after 5 s
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& url() const { return url_; }

 private:
  void wait_ready(const std::atomic<bool>& cancel);
  void stop();

  pid_t pid_ = -1;
  int out_ = -1;  // the reading end of its stdout
  std::string url_;
};

}  // namespace spyre::cli
