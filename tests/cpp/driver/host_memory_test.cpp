#include "csrc/driver/host/host_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/cpp/check.h"
#include "tests/cpp/temporary_folder.h"

namespace npu {
namespace {

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
