#include "csrc/placement/machine.h"

#include <algorithm>
#include <sstream>

#include "csrc/base/cgroup.h"

namespace npu {
namespace {

constexpr uint64_t kUs = 1000;
// The largest number of microseconds that is believed: 1000 s, where a group's
// period is a second at most.
constexpr int64_t kMostUs = 1'000'000'000;

Quota in_ns(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0 || quota_us > kMostUs ||
      period_us > kMostUs)
    return {};
  return {uint64_t(quota_us) * kUs, uint64_t(period_us) * kUs};
}

int64_t number_in(const std::string& file, int64_t otherwise) {
  std::istringstream in(text_of_file(file));
  int64_t number;
  return in >> number ? number : otherwise;
}

Quota quota_in(const CgroupFolder& folder) {
  if (folder.v2) return parse_cpu_max(text_of_file(folder.path + "/cpu.max"));
  return in_ns(number_in(folder.path + "/cpu.cfs_quota_us", -1),
               number_in(folder.path + "/cpu.cfs_period_us", -1));
}

bool tighter(const Quota& a, const Quota& b) {
  if (!a.ns || !b.ns) return a.ns > 0;
  return double(a.ns) / double(a.period_ns) <
         double(b.ns) / double(b.period_ns);
}

}  // namespace

Topology::Topology() {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) core[cpu] = int16_t(cpu);
  node.fill(0);
}

int Topology::distance(int cpu, int other) const {
  const auto from = size_t(node[cpu]), to = size_t(node[other]);
  if (from == to) return 0;
  return from < distances.size() && to < distances[from].size()
             ? distances[from][to]
             : 1;
}

std::vector<int> parse_cpus(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream in(part);
    int first, last;
    char dash;
    if (!(in >> first)) return {};
    if (!(in >> dash >> last)) last = first;
    if (first < 0 || last < first || last >= CPU_SETSIZE) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

Quota parse_cpu_max(const std::string& text) {
  std::istringstream in(text);
  int64_t quota, period;
  if (!(in >> quota)) return {};  // "max", or no such file
  if (!(in >> period)) period = 100'000;
  return in_ns(quota, period);
}

Quota cgroup_quota(const std::string& groups, const std::string& root) {
  Quota least;
  for (const CgroupFolder& folder : cgroup_folders(groups, root, "cpu"))
    if (const Quota quota = quota_in(folder); tighter(quota, least))
      least = quota;
  return least;
}

Topology read_topology(const std::string& sys) {
  Topology topology;
  const std::string devices = sys + "/devices/system/";
  for (const int cpu : parse_cpus(text_of_file(devices + "cpu/online"))) {
    const auto siblings =
        parse_cpus(text_of_file(devices + "cpu/cpu" + std::to_string(cpu) +
                                "/topology/thread_siblings_list"));
    if (!siblings.empty())
      topology.core[cpu] =
          int16_t(*std::min_element(siblings.begin(), siblings.end()));
  }
  const auto nodes = parse_cpus(text_of_file(devices + "node/online"));
  if (nodes.size() < 2) return topology;
  topology.distances.resize(size_t(nodes.back()) + 1);
  for (const int node : nodes) {
    const std::string folder = devices + "node/node" + std::to_string(node);
    for (const int cpu : parse_cpus(text_of_file(folder + "/cpulist")))
      topology.node[cpu] = int16_t(node);
    auto& row = topology.distances[size_t(node)];
    row.resize(topology.distances.size(), 1);
    // A column for each node that is online, in their order.
    std::istringstream in(text_of_file(folder + "/distance"));
    for (const int other : nodes) in >> row[size_t(other)];
  }
  return topology;
}

}  // namespace npu
