// Runs a part of a test in a process of its own.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cpp/check.h"

namespace npu::check {

struct Ended {
  int code;         // exit code, or minus the signal
  std::string err;  // what it wrote to stderr
};

inline constexpr unsigned kChildSeconds = 100;
inline constexpr int kThrew = 99;  // an exit code

// Whether a thread of this process sleeps; the calling one does not count.
inline bool sleeps(const std::filesystem::path& task) {
  if (task.filename() == std::to_string(gettid())) return true;
  std::ifstream file(task / "stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name = stat.rfind(')');
  // A thread that has ended meanwhile has no file.
  return name == std::string::npos || stat[name + 2] != 'R';
}

// The sanitizers' runtimes have locks of their own, which another thread may
// hold at a fork while it starts or allocates memory; the child then waits for
// them, at its exit at the latest, where leaks are looked for.
inline void wait_until_others_sleep() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  for (bool all = false; !all;) {
    all = true;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/self/task"))
      all = sleeps(task.path()) && all;
  }
#endif
}

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

inline void run_alone(void (*body)(), const char* file, int line) {
  const Ended ended = in_child([body] {
    body();
    return 0;
  });
  if (ended.code || !ended.err.empty())
    fail(file, line,
         "exit code " + std::to_string(ended.code) + "\n" + ended.err);
}

}  // namespace npu::check

// A test that runs in a process of its own, because pools, switches and what is
// read from the environment belong to the process. It fails, too, where that
// process writes to stderr, as a failed expectation does.
#define TEST_ALONE(suite, name)                                           \
  static void suite##_##name##_alone();                                   \
  TEST(suite, name) {                                                     \
    ::npu::check::run_alone(&suite##_##name##_alone, __FILE__, __LINE__); \
  }                                                                       \
  static void suite##_##name##_alone()
