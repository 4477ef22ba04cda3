#include "csrc/driver/emulated/spec.h"

#include <stdexcept>

#include "tests/cpp/check.h"

namespace npu {
namespace {

std::string fault(const char* text) {
  try {
    parse_emulated_spec(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}
bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(EmulatedSpec, TakesWhatIsGiven) {
  const EmulatedSpec spec =
      parse_emulated_spec("name=A;fp32=19.5e3;compute=real\ncopy_engines=3");
  EXPECT_EQ(spec.name, std::string("A"));
  EXPECT_EQ(spec.fp32, 19500.0);
  EXPECT_EQ(spec.copy_engines, 3);
  EXPECT_TRUE(spec.computes);
  EXPECT_EQ(spec.flops_of(4), 19500.0);
  EXPECT_EQ(spec.flops_of(2), spec.fp16);
}

TEST(EmulatedSpec, NamesKeyFoundAndExpected) {
  EXPECT_TRUE(has(fault("fp32=fast"), "fp32='fast': expected a number above"));
  EXPECT_TRUE(has(fault("link=0"), "link='0'"));
  EXPECT_TRUE(has(fault("launch_ns=-1"), "not below 0"));
  EXPECT_TRUE(has(fault("concurrency=1.5"), "whole number"));
  EXPECT_TRUE(has(fault("compute=some"), "none or real"));
  EXPECT_TRUE(has(fault("speed=1"), "speed"));
  EXPECT_TRUE(has(fault("speed"), "key=value"));
  EXPECT_TRUE(fault("launch_ns=0").empty());
}

}  // namespace
}  // namespace npu
