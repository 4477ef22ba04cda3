#include "csrc/graph/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/driver/kernel_flags.h"
#include "csrc/graph/body.h"
#include "csrc/graph/makespan.h"
#include "csrc/placement/tuning.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

// A graph of more nodes does not run in parallel: what is noted for each pair
// of them would take too long, and too much memory.
constexpr size_t kMostNodes = 4096;

std::atomic<ParallelMode>& mode() {
  static std::atomic<ParallelMode> mode{ParallelMode(
      env_choice("NPU_DISPATCH_PARALLEL_REPLAYS", {"auto", "off", "always"}))};
  return mode;
}

bool of_the_first(const Node& node) {
  return node.kind != Node::Kind::kKernel ||
         node.call.kernel->flags & (NPU_KERNEL_ON_HOST | kHasTeam);
}

}  // namespace

// Relaxed: a replay that is queued meanwhile may run either way.
ParallelMode parallel_mode() { return mode().load(std::memory_order_relaxed); }
ParallelMode set_parallel_mode(ParallelMode wanted) {
  return mode().exchange(wanted, std::memory_order_relaxed);
}

std::unique_ptr<Parallel> Parallel::of(const Body& body, int threads) {
  if (parallel_mode() == ParallelMode::kOff || threads < 2 ||
      body.lanes.size() > 1 || !body.groups.empty() || body.nodes.size() < 2 ||
      body.nodes.size() > kMostNodes)
    return nullptr;
  Edges after = dependencies(body);
  // Where each node waits for the one before it there is nothing to gain.
  bool chain = true;
  for (uint32_t n = 0; n + 1 < after.size() && chain; ++n)
    chain = std::ranges::find(after[n], n + 1) != after[n].end();
  if (chain) return nullptr;
  std::unique_ptr<Parallel> parallel(new Parallel(std::move(after), threads));
  for (const Node& node : body.nodes)
    parallel->of_the_first_.push_back(of_the_first(node));
  return parallel;
}

Parallel::Parallel(Edges after, int threads)
    : after_(std::move(after)),
      node_ns_(after_.size(), ~uint64_t{0}),
      threads_(threads) {}

int Parallel::run_in_turn(NodeRunner nodes, npu_failure& failure) {
  for (uint32_t n = 0; n < after_.size(); ++n)
    if (const int code = nodes(n, failure)) return code;
  return NPU_OK;
}

int Parallel::run_timed(NodeRunner nodes, npu_failure& failure) {
  uint64_t begun = ticks();
  for (uint32_t n = 0; n < after_.size(); ++n) {
    if (const int code = nodes(n, failure)) return code;
    const uint64_t ended = ticks();
    node_ns_[n] =
        std::min(node_ns_[n], ticks_to_ns(ticks_between(begun, ended)));
    begun = ended;
  }
  return NPU_OK;
}

void Parallel::plan() {
  const uint64_t in_turn =
      std::accumulate(node_ns_.begin(), node_ns_.end(), uint64_t{0});
  // As many cores as shorten it by a tenth each time that they are doubled.
  uint64_t least = in_turn;
  for (int cores = 2; cores <= Crew::kMost; cores *= 2) {
    const uint64_t ns = makespan(after_, node_ns_, cores);
    if (ns + ns / 10 > least && cores > 2) break;
    least = ns;
    cores_ = cores;
  }
  policy_.predicted(in_turn, least);
  const std::vector<uint64_t> urgent = urgency(after_, node_ns_);
  ranked_.resize(after_.size());
  std::iota(ranked_.begin(), ranked_.end(), 0);
  std::ranges::stable_sort(ranked_, std::greater{},
                           [&](uint32_t n) { return urgent[n]; });
  std::vector<uint32_t> rank_of(ranked_.size());
  for (uint32_t rank = 0; rank < ranked_.size(); ++rank)
    rank_of[ranked_[rank]] = rank;
  std::vector<RankedNode> nodes(ranked_.size());
  for (uint32_t n = 0; n < after_.size(); ++n) {
    nodes[rank_of[n]].of_the_first = of_the_first_[n];
    for (const uint32_t other : after_[n]) {
      nodes[rank_of[n]].after.push_back(rank_of[other]);
      ++nodes[rank_of[other]].before;
    }
  }
  ready_.emplace(std::move(nodes));
}

int Parallel::run(Stream& stream, NodeRunner nodes, npu_failure& failure) {
  const int cores = std::min(core_share_here(threads_), cores_);
  How how = policy_.next();
  if (how != How::kTimed) {
    if (parallel_mode() == ParallelMode::kAlways) how = How::kParallel;
    // Where it has one core for the moment, nothing is learnt.
    if (parallel_mode() == ParallelMode::kOff ||
        (how == How::kParallel && cores < 2))
      return run_in_turn(nodes, failure);
  }
  const uint64_t begun = ticks();
  const int code = how == How::kTimed ? run_timed(nodes, failure)
                   : how == How::kInTurn
                       ? run_in_turn(nodes, failure)
                       : run_parallel(stream, cores, nodes, failure);
  if (code == NPU_OK &&
      policy_.took(ticks_to_ns(ticks_between(begun, ticks()))))
    plan();
  return code;
}

// A replay that several threads run.
struct Parallel::Replay {
  Parallel& parallel;
  Stream& stream;
  const NodeRunner nodes;
  std::mutex failed{};  // guards what follows
  int code = NPU_OK;
  uint32_t at = ~uint32_t{0};  // the node that has failed
  npu_failure failure{};

  void work(bool first);

 private:
  bool run(uint32_t at);
  int wait_for_node(bool first);
};

bool Parallel::Replay::run(uint32_t node) {
  npu_failure own;
  own.text[0] = 0;
  const int outcome = nodes(node, own);
  if (outcome == NPU_OK) [[likely]]
    return true;
  parallel.ready_->give_up();
  const std::lock_guard lock(failed);
  if (node < at) {
    at = node;
    code = outcome;
    failure = own;
  }
  return false;
}

// Helps others with their kernels meanwhile. BasicReadyNodes::kNone: there will
// be none.
int Parallel::Replay::wait_for_node(bool first) {
  using Nodes = BasicReadyNodes<System>;
  WaitingHelper helper;
  uint64_t patient_until = now_ns() + tuning::kCrewSpinNs;
  for (;;) {
    if (const int node = parallel.ready_->take(first); node != Nodes::kNone)
      return node;
    if (parallel.ready_->over()) return Nodes::kNone;
    if (helper.help()) {
      patient_until = now_ns() + tuning::kCrewSpinNs;
    } else if (now_ns() < patient_until) {
      pause();
    } else {
      // A thread that runs a node has perhaps lost its core, and this one is
      // left to it for a moment.
      System::nap();
    }
  }
}

void Parallel::Replay::work(bool first) {
  BasicReadyNodes<System>& ready = *parallel.ready_;
  for (int node = ready.take(first);;) {
    if (node == BasicReadyNodes<System>::kNone &&
        (node = wait_for_node(first)) == BasicReadyNodes<System>::kNone)
      return;
    if (ready.given_up() || !run(parallel.ranked_[size_t(node)])) return;
    node = ready.done(uint32_t(node), first);
  }
}

int Parallel::run_parallel(Stream& stream, int cores, NodeRunner nodes,
                           npu_failure& failure) {
  Replay replay{*this, stream, nodes};
  ready_->begin();
  crew_.run(
      cores,
      [](void* context, int member) {
        Replay& replay = *static_cast<Replay*>(context);
        if (member == 0) return replay.work(true);
        if (replay.parallel.ready_->over()) return;
        in_place_of(
            replay.stream,
            [](void* r) { static_cast<Replay*>(r)->work(false); }, &replay);
      },
      &replay);
  if (replay.code != NPU_OK) failure = replay.failure;
  return replay.code;
}

}  // namespace npu
