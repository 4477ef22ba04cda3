#include "csrc/base/env.h"

#include <stdlib.h>

#include "tests/cpp/check.h"

namespace npu {
namespace {

constexpr char kName[] = "NPU_TEST_VARIABLE";

void set(const char* value) { setenv(kName, value, 1); }

TEST(Env, UnsetAndEmptyMeanTheFallback) {
  unsetenv(kName);
  EXPECT_EQ(env_string(kName, "x"), "x");
  EXPECT_EQ(env_int(kName, 7, 0, 10), 7);
  EXPECT_EQ(env_bytes(kName, 9), 9);
  EXPECT_TRUE(!env_flag(kName));

  set("");
  EXPECT_EQ(env_string(kName, "x"), "x");
  EXPECT_EQ(env_int(kName, 7, 0, 10), 7);
}

TEST(Env, ReadsAnIntegerWithinItsRange) {
  set("-3");
  EXPECT_EQ(env_int(kName, 7, -5, 10), -3);
  set("10");
  EXPECT_EQ(env_int(kName, 7, -5, 10), 10);
}

TEST(Env, UsesTheFallbackForABadInteger) {
  for (const char* bad : {"11", "-6", "3x", "x", "99999999999999999999"}) {
    set(bad);
    EXPECT_EQ(env_int(kName, 7, -5, 10), 7);
  }
}

TEST(Env, ReadsASizeWithItsSuffix) {
  const uint64_t k = 1024;
  for (auto [text, bytes] : {std::pair{"100", uint64_t{100}},
                             {"4k", 4 * k},
                             {"4KiB", 4 * k},
                             {"512M", 512 * k * k},
                             {"1.5G", 3 * k * k * k / 2},
                             {"2T", 2 * k * k * k * k}}) {
    set(text);
    EXPECT_EQ(env_bytes(kName, 1), bytes);
  }
}

TEST(Env, UsesTheFallbackForABadSize) {
  for (const char* bad : {"x", "-1", "0", "5Q", "5MM", "1e300", "nan"}) {
    set(bad);
    EXPECT_EQ(env_bytes(kName, 1), 1);
  }
}

TEST(Env, ReadsAChoiceInAnyCase) {
  set("second");
  EXPECT_EQ(env_choice(kName, {"first", "second"}), 1);
  set("FIRST");
  EXPECT_EQ(env_choice(kName, {"first", "second"}), 0);
  for (const char* bad : {"third", "1", ""}) {
    set(bad);
    EXPECT_EQ(env_choice(kName, {"first", "second"}), 0);
  }
}

TEST(Env, ReadsAFlagInAnyCase) {
  for (const char* yes : {"1", "true", "YES", "on"}) {
    set(yes);
    EXPECT_TRUE(env_flag(kName));
  }
  for (const char* no : {"0", "False", "no", "off", "perhaps"}) {
    set(no);
    EXPECT_TRUE(!env_flag(kName));
  }
}

}  // namespace
}  // namespace npu
