// Runs a part of a test in a process of its own.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>

namespace npu::check {

struct Ended {
  int code;         // exit code, or minus the signal
  std::string err;  // what it wrote to stderr
};

inline constexpr unsigned kChildSeconds = 100;
inline constexpr int kThrew = 99;  // an exit code

// Forks; the child calls body() and exits with what it returns, through
// exit(), so that everything registered for exit runs. A child that hangs is
// killed by SIGALRM.
template <typename Body>
Ended in_child(Body body) {
  int ends[2];
  if (pipe(ends)) abort();
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kChildSeconds);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    try {
      exit(body());
    } catch (const std::exception& e) {
      // What a child throws must not go on with the rest of its parent's tests.
      fprintf(stderr, "threw: %s\n", e.what());
      _exit(kThrew);
    }
  }
  close(ends[1]);
  Ended ended{};
  char text[512];
  for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;)
    ended.err.append(text, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ended;
}

}  // namespace npu::check
