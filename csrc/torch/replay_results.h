// What replays leave in the tensors of their results.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <vector>

#include "csrc/graph/graph.h"

namespace npu {

class HeldResult;

// The results of a graph that is replayed where nobody holds what it
// overwrites: Overwrites::any_held() knows.
class ReplayResults {
 public:
  // `storages`: of the results that a replay writes. Whoever else owns these
  // now goes on doing so, and does not count as somebody who holds a result.
  ReplayResults(Overwrites& of, std::vector<c10::Storage> storages);
  // Results that somebody holds stay as they are.
  ~ReplayResults();
  ReplayResults(const ReplayResults&) = delete;

 private:
  std::vector<std::shared_ptr<HeldResult>> results_;
};

// From now on a replay that overwrites these results, which are of a replay of
// `graph`, counts as a change of them in place: autograd refuses a backward
// that has saved them.
void note_changes_of(const std::vector<at::Tensor>& results, Graph& graph);

// Counts the replays that overwrite what a replay of `graph` leaves to `reader`
// in the pool of `graph`. `reader` may have captured nothing.
class OverwriteCount {
 public:
  OverwriteCount(Graph& graph, const Graph& reader);
  ~OverwriteCount();
  OverwriteCount(const OverwriteCount&) = delete;
  uint64_t now() const;

 private:
  class Counted;
  const std::shared_ptr<Counted> counted_;
};

}  // namespace npu
