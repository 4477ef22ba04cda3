#include "csrc/driver/host/host_memory.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cpp/check.h"

namespace npu {
namespace {

namespace fs = std::filesystem;

// A folder of control groups, removed at the end of the test.
class Groups {
 public:
  Groups() {
    char name[] = "/tmp/npu_groups_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Groups() { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    const fs::path path = fs::path(root_) / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  uint64_t limit(const std::string& groups) const {
    return cgroup_memory_limit(groups, root_);
  }

 private:
  std::string root_;
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
