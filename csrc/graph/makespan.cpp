#include "csrc/graph/makespan.h"

#include <algorithm>
#include <queue>

namespace npu {

std::vector<uint64_t> urgency(const Edges& after,
                              const std::vector<uint64_t>& ns) {
  std::vector<uint64_t> until_the_end(ns.size());
  for (size_t n = ns.size(); n-- > 0;) {
    uint64_t behind = 0;
    for (const uint32_t other : after[n])
      behind = std::max(behind, until_the_end[other]);
    // At least 1, so that what comes after a node is less urgent.
    until_the_end[n] = behind + std::max<uint64_t>(ns[n], 1);
  }
  return until_the_end;
}

uint64_t makespan(const Edges& after, const std::vector<uint64_t>& ns,
                  int cores) {
  const std::vector<uint64_t> urgent = urgency(after, ns);
  std::vector<uint32_t> waits_for(ns.size());
  for (const auto& others : after)
    for (const uint32_t other : others) ++waits_for[other];

  const auto less = [&](uint32_t a, uint32_t b) {
    return urgent[a] != urgent[b] ? urgent[a] < urgent[b] : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(less)> ready(
      less);
  for (uint32_t n = 0; n < ns.size(); ++n)
    if (!waits_for[n]) ready.push(n);

  struct Running {
    uint64_t ends;
    uint32_t node;
    int core;
    bool operator>(const Running& o) const { return ends > o.ends; }
  };
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  std::vector<int> idle;
  for (int core = cores; core-- > 0;) idle.push_back(core);
  std::vector<int> ran_on(ns.size(), -1);  // the core of the last one before it
  uint64_t now = 0;
  for (;;) {
    while (!ready.empty() && !idle.empty()) {
      const uint32_t node = ready.top();
      ready.pop();
      auto core = std::ranges::find(idle, ran_on[node]);
      const bool moves = core == idle.end() && ran_on[node] >= 0;
      if (core == idle.end()) core = idle.end() - 1;
      running.push({now + ns[node] + (moves ? kHandOverNs : 0), node, *core});
      idle.erase(core);
    }
    if (running.empty()) return now;
    const Running first = running.top();
    running.pop();
    now = first.ends;
    idle.push_back(first.core);
    for (const uint32_t other : after[first.node]) {
      ran_on[other] = first.core;
      if (!--waits_for[other]) ready.push(other);
    }
  }
}

}  // namespace npu
