// How the environment chooses the driver and its devices. Each case runs in a
// process of its own, because the choice is made once.
#include "csrc/driver/driver.h"

#include <signal.h>
#include <string.h>

#include "tests/cpp/check.h"
#include "tests/cpp/child.h"

namespace npu {
namespace {

int devices_with(const char* installed, const char* visible) {
  return in_child([=] {
           setenv("NPU_DISPATCH_DEVICES", installed, 1);
           setenv("ASCEND_RT_VISIBLE_DEVICES", visible, 1);
           return find_driver("host")->device_count();
         })
      .code;
}

TEST(HostDevices, AreAsManyAsInstalledWhenNoListIsGiven) {
  EXPECT_EQ(devices_with("4", ""), 4);
  EXPECT_EQ(devices_with("", ""), 1);
}

TEST(HostDevices, AreLimitedByTheListOfVisibleOnes) {
  EXPECT_EQ(devices_with("4", "0,2"), 2);
  EXPECT_EQ(devices_with("4", "3"), 1);
}

TEST(HostDevices, EndAtTheFirstBadItemOfTheList) {
  EXPECT_EQ(devices_with("4", "0,1,9,2"), 2);
  EXPECT_EQ(devices_with("4", "0,x,2"), 1);
  EXPECT_EQ(devices_with("4", "-1"), 0);
}

TEST(HostDevices, AreNoneWhenTheListIsOutOfOrder) {
  EXPECT_EQ(devices_with("4", "2,0"), 0);
  EXPECT_EQ(devices_with("4", "1,1"), 0);
}

TEST(HostDevices, HaveTheMemoryTheEnvironmentSays) {
  const auto ended = in_child([] {
    setenv("NPU_DISPATCH_MEMORY", "3M", 1);
    setenv("NPU_DISPATCH_MEMORY_1", "5M", 1);
    const npu_driver& host = *find_driver("host");
    return int(host.memory_total(0) >> 20) * 10 +
           int(host.memory_total(1) >> 20);
  });
  EXPECT_EQ(ended.code, 35);
}

TEST(Registry, RefusesByNameADriverThatCannotBeUsed) {
  const auto says = [](const char* name) {
    return in_child([name] {
      setenv("NPU_DRIVER", name, 1);
      try {
        driver();
      } catch (const std::runtime_error& error) {
        fputs(error.what(), stderr);
        return 3;
      }
      return 0;
    });
  };
  const auto unknown = says("abacus");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_TRUE(strstr(unknown.err.c_str(), "NPU_DRIVER=abacus"));
  EXPECT_TRUE(strstr(unknown.err.c_str(), "host, null"));
  const auto missing = says("/nowhere/abacus.so");
  EXPECT_EQ(missing.code, 3);
  EXPECT_TRUE(strstr(missing.err.c_str(), "cannot be loaded"));
}

}  // namespace
}  // namespace npu
