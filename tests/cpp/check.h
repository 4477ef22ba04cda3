// The test framework of the C++ tests: TEST(Suite, Name) { ... EXPECT_EQ(a, b);
// ... }
#pragma once

#include <concepts>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace npu::check {

struct Test {
  const char* suite;
  const char* name;
  void (*body)();
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

#define EXPECT_TRUE(condition)                                            \
  do {                                                                    \
    if (!(condition)) ::npu::check::fail(__FILE__, __LINE__, #condition); \
  } while (0)

#define EXPECT_EQ(a, b) \
  ::npu::check::expect_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

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
