// The test framework of the C++ tests, and what their files include:
// TEST(Suite, Name) { ... EXPECT_EQ(a, b); ... }
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace npu::check {

using Numbers = std::vector<uint64_t>;

struct Test {
  const char* suite;
  const char* name;
  std::function<void()> body;
  Test* next = nullptr;
};

// Called before main(); tests run in the order of registration.
int add(Test& test);

// Notes a failure of the running test, which goes on. Any thread.
void fail(const char* file, int line, const std::string& text);

// What random inputs follow from: NPU_TEST_SEED, else 0, which makes them the
// same in every run.
unsigned seed();

template <typename T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { value.begin(); }) {
    for (const auto& item : value) out << show(item) << ", ";
  } else if constexpr (requires { value.second; }) {
    out << show(value.first) << " " << show(value.second);
  } else {
    out << "a value of " << sizeof(T) << " bytes";
  }
  return out.str();
}

template <typename T>
concept Integer =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

template <typename A, typename B>
void expect_equal(const A& a, const B& b, const char* text, const char* file,
                  int line) {
  bool equal;
  if constexpr (Integer<A> && Integer<B>) {
    equal = std::cmp_equal(a, b);
  } else {
    equal = a == b;
  }
  if (!equal)
    fail(file, line, std::string(text) + ": " + show(a) + " and " + show(b));
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void expect_contains(const std::string& text, const std::string& part,
                            const char* file, int line) {
  if (!contains(text, part)) fail(file, line, text + " lacks: " + part);
}

// What the call throws as an Error says; "" where it throws none.
template <typename Error = std::runtime_error, typename Call>
std::string thrown(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Of a part of a test that ran in a process of its own.
struct Ended {
  int code;         // exit code, or minus the signal
  std::string err;  // what it wrote to stderr
};

inline constexpr unsigned kChildSeconds = 100;

// Forks; the child calls body() and exits with what it returns, through
// exit(), so that everything registered for exit runs. A child that hangs is
// killed by SIGALRM.
Ended in_child(const std::function<int()>& body);

// A file of /proc about a thread of this process; "" where it has ended.
std::string thread_file(uint64_t thread, const char* name);
// 'R' where it runs or could, 'S' where it sleeps, 0 where it has ended.
char state_of(uint64_t thread);

// The sanitizers' runtimes have locks of their own, which another thread may
// hold at a fork while it starts or allocates memory; the child then waits for
// them, at its exit at the latest, where leaks are looked for.
void wait_until_others_sleep();

void run_alone(void (*body)(), const char* file, int line);

}  // namespace npu::check

namespace npu {

// Tests name what is in there without its namespace.
using namespace check;

}  // namespace npu

#define TEST(suite, name)                                                 \
  static void suite##_##name##_body();                                    \
  static ::npu::check::Test suite##_##name##_test{#suite, #name,          \
                                                  suite##_##name##_body}; \
  [[maybe_unused]] static const int suite##_##name##_added =              \
      ::npu::check::add(suite##_##name##_test);                           \
  static void suite##_##name##_body()

// A test that runs in a process of its own, because pools, switches and what is
// read from the environment belong to the process. It fails, too, where that
// process writes to stderr, as a failed expectation does.
#define TEST_ALONE(suite, name)                                           \
  static void suite##_##name##_alone();                                   \
  TEST(suite, name) {                                                     \
    ::npu::check::run_alone(&suite##_##name##_alone, __FILE__, __LINE__); \
  }                                                                       \
  static void suite##_##name##_alone()

#define EXPECT_TRUE(condition)                                            \
  do {                                                                    \
    if (!(condition)) ::npu::check::fail(__FILE__, __LINE__, #condition); \
  } while (0)

#define EXPECT_EQ(a, b) \
  ::npu::check::expect_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

#define EXPECT_CONTAINS(text, part) \
  ::npu::check::expect_contains((text), (part), __FILE__, __LINE__)

#define EXPECT_THROWS(expression, type)                                     \
  do {                                                                      \
    bool caught_ = false;                                                   \
    try {                                                                   \
      expression;                                                           \
    } catch (const type&) {                                                 \
      caught_ = true;                                                       \
    }                                                                       \
    if (!caught_)                                                           \
      ::npu::check::fail(__FILE__, __LINE__, #expression " throws " #type); \
  } while (0)
