// How the environment chooses the driver, its devices and their memory. The
// choice is made once: each case of it runs in a process of its own.
#include "csrc/driver/driver.h"
#include "csrc/driver/host/host_memory.h"
#include "tests/cpp/check.h"
#include "tests/cpp/system.h"

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

TEST(HostDevices, AreThoseOfTheListOfVisibleOnesUpToItsFirstBadItem) {
  const struct {
    const char *installed, *visible;
    int devices;
  } cases[] = {{"4", "", 4},
               {"", "", 1},
               {"4", "0,2", 2},
               {"4", "3", 1},
               {"4", "-1", 0},
               {"4", "0,x,2", 1},
               {"4", "0,1,9,2", 2},
               // A list that is out of order is none.
               {"4", "2,0", 0},
               {"4", "1,1", 0}};
  for (const auto& c : cases)
    EXPECT_EQ(devices_with(c.installed, c.visible), c.devices);
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
             fputs(thrown([] { driver(); }).c_str(), stderr);
             return 0;
           })
        .err;
  };
  EXPECT_CONTAINS(says("abacus"), "NPU_DRIVER=abacus");
  EXPECT_CONTAINS(says("abacus"), "host, null");
  EXPECT_CONTAINS(says("/nowhere/abacus.so"), "cannot be loaded");
}

// A folder of control groups.
struct Groups : TemporaryFolder {
  uint64_t limit(const std::string& groups) const {
    return cgroup_memory_limit(groups, path);
  }
};

TEST(HostMemory, IsLimitedByTheLeastOfItsControlGroups) {
  Groups groups;
  EXPECT_EQ(groups.limit("0::/a/b\n"), UINT64_MAX);
  groups.write("a/b/memory.max", "max");
  groups.write("a/memory.max", "3000000000");
  EXPECT_EQ(groups.limit("0::/a/b\n"), 3'000'000'000);
  groups.write("a/b/memory.max", "2000000000");
  EXPECT_EQ(groups.limit("0::/a/b\n"), 2'000'000'000);
  groups.write("memory.max", "1000000000");
  EXPECT_EQ(groups.limit("0::/a/b\n"), 1'000'000'000);
  EXPECT_EQ(groups.limit("0::/not/seen/here\n"), 1'000'000'000);
  EXPECT_EQ(groups.limit("0::/\n"), 1'000'000'000);
}

TEST(HostMemory, KnowsTheFirstVersionOfControlGroups) {
  Groups groups;
  groups.write("memory/c/memory.limit_in_bytes", "500000000");
  groups.write("memory/memory.limit_in_bytes", "9223372036854771712");
  const std::string text = "5:cpu,cpuacct:/other\n4:memory:/c\n0::/somewhere\n";
  EXPECT_EQ(groups.limit(text), 500'000'000);
  EXPECT_EQ(groups.limit(""), UINT64_MAX);
  EXPECT_EQ(groups.limit("nonsense\n"), UINT64_MAX);
}

TEST(HostMemory, IsNotGivenToDevicesAsAWhole) {
  for (int devices = 1; devices <= 64; ++devices)
    EXPECT_TRUE(device_memory(host_memory(), devices) * uint64_t(devices) <=
                host_memory() / 2);
  EXPECT_EQ(device_memory(1000, 1), 500);
  EXPECT_EQ(device_memory(1000, 4), 125);
}

}  // namespace
}  // namespace npu
