// Which nodes of a graph can run, for the threads that replay it together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace npu {

// Nodes are numbered by urgency: 0 is taken first. A node's successors have
// larger numbers.
struct RankedNode {
  std::vector<uint32_t> after;  // the nodes that wait for it
  uint32_t before = 0;          // for how many nodes it waits
  bool of_the_first = false;    // only the first thread may run it
};

// One replay at a time. Memory order: what was done before done(a) is seen by
// whoever is handed a node that comes after a. Each node of a replay is handed
// to one thread.
template <typename System>
class BasicReadyNodes {
 public:
  static constexpr int kNone = -1;

  explicit BasicReadyNodes(std::vector<RankedNode> nodes)
      : nodes_(std::move(nodes)),
        n_words_((nodes_.size() + 63) / 64),
        waits_for_(new Atomic<uint32_t>[nodes_.size()]),
        ready_(new Atomic<uint64_t>[2 * n_words_]) {}

  size_t size() const { return nodes_.size(); }

  // A replay begins; nobody is in another one. Relaxed: the threads that take
  // part begin behind it.
  void begin() {
    left_.store(uint32_t(nodes_.size()), std::memory_order_relaxed);
    given_up_.store(false, std::memory_order_relaxed);
    for (size_t w = 0; w < 2 * n_words_; ++w)
      ready_[w].store(0, std::memory_order_relaxed);
    for (uint32_t n = 0; n < nodes_.size(); ++n) {
      waits_for_[n].store(nodes_[n].before, std::memory_order_relaxed);
      if (!nodes_[n].before) put(n);
    }
  }

  // The most urgent node that is ready, which is the caller's from then on;
  // kNone: there is none that it may run. `first`: of the first thread.
  int take(bool first) {
    for (size_t w = 0; w < n_words_; ++w)
      for (;;) {
        uint64_t own = 0;
        // Relaxed: the exchange below is what hands a node over.
        uint64_t all = ready_[w].load(std::memory_order_relaxed);
        if (first) own = ready_[n_words_ + w].load(std::memory_order_relaxed);
        if (!(all | own)) break;
        const uint64_t bit = (all | own) & -(all | own);
        const bool is_own = own & bit;
        uint64_t& seen = is_own ? own : all;
        // Acquire: what the nodes before it did. Whoever put it had seen all of
        // that, and later changes of the word are read-modify-writes.
        if (ready_[is_own ? n_words_ + w : w].compare_exchange_weak(
                seen, seen & ~bit, std::memory_order_acquire,
                std::memory_order_relaxed))
          return int(w * 64) + __builtin_ctzll(bit);
      }
    return kNone;
  }

  // A node of the caller's has run. Returns the next one for it, which follows
  // on this one: what it reads is in this core's caches. kNone: take().
  int done(uint32_t node, bool first) {
    int next = kNone;
    for (const uint32_t after : nodes_[node].after) {
      const RankedNode& other = nodes_[after];
      // Release: what this node did. Acquire: what the others before it did,
      // where this was the last one.
      if (other.before > 1 &&
          waits_for_[after].fetch_sub(1, std::memory_order_acq_rel) != 1)
        continue;
      if (other.of_the_first && !first)
        put(after);
      else if (next == kNone)
        next = int(after);
      else
        put(std::max(uint32_t(next), after)),
            next = int(std::min(uint32_t(next), after));
    }
    // Release: whoever finds that all have run sees what they did.
    left_.fetch_sub(1, std::memory_order_release);
    return next;
  }

  // Nobody is to begin another node.
  void give_up() {
    // Relaxed: a flag that orders nothing.
    given_up_.store(true, std::memory_order_relaxed);
  }
  bool given_up() const { return given_up_.load(std::memory_order_relaxed); }

  // Whether there is nothing left to begin, now or later.
  bool over() const {
    return !left_.load(std::memory_order_acquire) || given_up();
  }

 private:
  template <typename T>
  using Atomic = typename System::template Atomic<T>;

  // The bit is not set: a node becomes ready once. Release: see take().
  void put(uint32_t node) {
    const size_t word = nodes_[node].of_the_first ? n_words_ : 0;
    ready_[word + node / 64].fetch_add(uint64_t{1} << node % 64,
                                       std::memory_order_release);
  }

  const std::vector<RankedNode> nodes_;
  const size_t n_words_;
  std::unique_ptr<Atomic<uint32_t>[]> waits_for_;
  // A bit for each ready node that nobody has taken: those that any thread may
  // run, then those of the first one.
  std::unique_ptr<Atomic<uint64_t>[]> ready_;
  Atomic<uint32_t> left_{0};
  Atomic<bool> given_up_{false};
};

}  // namespace npu
