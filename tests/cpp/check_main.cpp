// Runs the tests of an executable: all, or those whose "Suite.Name" contains
// one of the arguments. With "-x" as the first argument it stops at the first
// failure. The last line is "N passed, N failed".
#include "tests/cpp/check.h"

namespace npu::check {
namespace {

Test* first = nullptr;
Test** end = &first;
std::atomic<int> failures{0};  // of the running test

bool selected(const std::string& name, int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (name.find(argv[i]) != std::string::npos) return true;
  return argc == 1;
}

}  // namespace

int add(Test& test) {
  *end = &test;
  end = &test.next;
  return 0;
}

void fail(const char* file, int line, const std::string& text) {
  failures.fetch_add(1);
  fprintf(stderr, "%s:%d: %s\n", file, line, text.c_str());
}

unsigned seed() {
  const char* const given = getenv("NPU_TEST_SEED");
  return given ? unsigned(strtoul(given, nullptr, 10)) : 0;
}

std::string thread_file(uint64_t thread, const char* name) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

char state_of(uint64_t thread) {
  const std::string stat = thread_file(thread, "stat");
  const size_t name = stat.rfind(')');
  return name == std::string::npos ? 0 : stat[name + 2];
}

void wait_until_others_sleep() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  for (bool all = false; !all;) {
    all = true;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/self/task")) {
      const uint64_t thread = std::stoull(task.path().filename());
      all &= thread == uint64_t(gettid()) || state_of(thread) != 'R';
    }
  }
#endif
}

Ended in_child(const std::function<int()>& body) {
  constexpr int kThrew = 99;  // an exit code
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

void run_alone(void (*body)(), const char* file, int line) {
  const Ended ended = in_child([body] {
    body();
    return 0;
  });
  if (ended.code || !ended.err.empty())
    fail(file, line,
         "exit code " + std::to_string(ended.code) + "\n" + ended.err);
}

int run(int argc, char** argv) {
  const bool stops = argc > 1 && !strcmp(argv[1], "-x");
  if (stops) {
    --argc;
    ++argv;
  }
  int passed = 0, failed = 0;
  for (Test* test = first; test; test = test->next) {
    const std::string name = std::string(test->suite) + "." + test->name;
    if (!selected(name, argc, argv)) continue;
    failures = 0;
    try {
      test->body();
    } catch (const std::exception& e) {
      fail(name.c_str(), 0, std::string("exception: ") + e.what());
    }
    ++(failures ? failed : passed);
    printf("%s %s\n", failures ? "FAILED" : "ok    ", name.c_str());
    fflush(stdout);
    if (failed && stops) break;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

}  // namespace npu::check

int main(int argc, char** argv) { return npu::check::run(argc, argv); }
