// Reads what a machine says about itself from files as its kernel writes them.
#include "csrc/placement/machine.h"

#include "tests/cpp/check.h"
#include "tests/cpp/temporary_folder.h"

namespace npu {
namespace {

using check::TemporaryFolder;

constexpr uint64_t kMs = 1'000'000;

void expect_quota(const Quota& quota, uint64_t ns, uint64_t period_ns) {
  EXPECT_EQ(quota.ns, ns);
  EXPECT_EQ(quota.period_ns, period_ns);
}

TEST(Machine, ReadsListsOfCpus) {
  EXPECT_TRUE(
      (parse_cpus("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_TRUE(parse_cpus("5") == std::vector<int>{5});
  for (const char* bad : {"", "x", "3-1", "0-99999", "-1", "1,x"})
    EXPECT_TRUE(parse_cpus(bad).empty());
}

TEST(Machine, ReadsAQuota) {
  expect_quota(parse_cpu_max("150000 100000\n"), 150 * kMs, 100 * kMs);
  expect_quota(parse_cpu_max("50000"), 50 * kMs, 100 * kMs);
  for (const char* none : {"", "max 100000", "max", "-1 100000", "0 100000",
                           "1000 0", "9999999999999 1"})
    expect_quota(parse_cpu_max(none), 0, 0);
}

TEST(Machine, HasTheTightestQuotaOfItsGroups) {
  TemporaryFolder files;
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 0, 0);
  files.write("a/b/cpu.max", "max 100000");
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 0, 0);
  files.write("a/cpu.max", "150000 50000");  // 3 cores
  files.write("cpu.max", "400000 100000");   // 4
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 150 * kMs, 50 * kMs);
  files.write("a/b/cpu.max", "200000 100000");  // 2
  expect_quota(cgroup_quota("0::/a/b\n", files.path), 200 * kMs, 100 * kMs);
  // A container sees its own mount, but the name that its group has on the
  // host.
  expect_quota(cgroup_quota("0::/not/here\n", files.path), 400 * kMs,
               100 * kMs);
}

TEST(Machine, KnowsTheFirstVersionOfControlGroups) {
  TemporaryFolder files;
  files.write("cpu/c/cpu.cfs_quota_us", "50000");
  files.write("cpu/c/cpu.cfs_period_us", "100000");
  files.write("cpu/cpu.cfs_quota_us", "-1");
  files.write("cpu/cpu.cfs_period_us", "100000");
  const std::string text = "5:cpu,cpuacct:/c\n4:cpuset:/d\n0::/e\n";
  expect_quota(cgroup_quota(text, files.path), 50 * kMs, 100 * kMs);
  expect_quota(cgroup_quota("5:cpuset:/c\n", files.path), 0, 0);
}

TEST(Machine, KnowsThreadsOfACoreAndNodes) {
  TemporaryFolder files;
  files.write("devices/system/cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu)
    files.write("devices/system/cpu/cpu" + std::to_string(cpu) +
                    "/topology/thread_siblings_list",
                std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  files.write("devices/system/node/online", "0,2");
  files.write("devices/system/node/node0/cpulist", "0-1,4-5");
  files.write("devices/system/node/node0/distance", "10 32");
  files.write("devices/system/node/node2/cpulist", "2-3,6-7");
  files.write("devices/system/node/node2/distance", "31 10");

  const Topology topology = read_topology(files.path);

  for (int cpu = 0; cpu < 8; ++cpu) EXPECT_EQ(topology.core[cpu], cpu % 4);
  EXPECT_EQ(topology.distance(0, 5), 0);
  EXPECT_EQ(topology.distance(0, 2), 32);
  EXPECT_EQ(topology.distance(6, 1), 31);
  EXPECT_EQ(topology.core[9], 9);
}

TEST(Machine, WithoutFilesHasCoresOfOneNode) {
  const Topology topology = read_topology("/nonexistent");
  EXPECT_TRUE(topology.core[0] != topology.core[1]);
  EXPECT_EQ(topology.distance(0, 1), 0);
}

}  // namespace
}  // namespace npu
