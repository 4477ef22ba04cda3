// Runs the tests of an executable: all, or those whose "Suite.Name" contains
// one of the arguments. With "-x" as the first argument it stops at the first
// failure. The last line is "N passed, N failed".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <string>

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
