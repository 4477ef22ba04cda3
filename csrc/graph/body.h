// What a capture leaves behind: its tasks, decoded, and how a replay runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/graph/inputs.h"
#include "csrc/graph/lane.h"
#include "csrc/graph/replay_memory.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

class GraphPool;

// The kernel and the words of one node of a graph.
struct Call {
  const npu_kernel* kernel = nullptr;
  // The kernel, where the node owns it.
  std::unique_ptr<npu_kernel, void (*)(npu_kernel*)> own{nullptr, nullptr};
  std::vector<uint64_t> words;
  int drawn_word = -1;
};

// Where each replay takes numbers that no other has: the offsets of random
// numbers, or the numbers of a group's collectives.
struct Draws {
  uint64_t seed, offset;
};
class NumberSource {
 public:
  virtual ~NumberSource() = default;
  // Reserves `count` at once. Waits for nothing: the replay's tasks are open.
  virtual Draws reserve(uint64_t count) noexcept = 0;
};

class Body;
class RunAhead;
struct Update;

// Consecutive nodes of one stream whose arguments may be replaced. Owned by the
// body, by the handles of the user, and by updates that are under way.
struct Group {
  // Null once the graph has been reset or destroyed. Like the graph, used by
  // one thread at a time.
  const Body* body;
  std::vector<uint32_t> nodes;
  // What its calls read; null: unchecked. The thread that replays uses it once
  // the capture has ended.
  std::unique_ptr<Inputs> inputs;
  // The next replay that reaches the group takes it. Release where it is put
  // and acquire where it is taken: whoever takes it sees its calls.
  std::atomic<Update*> next{nullptr};

  explicit Group(const Body* body) : body(body) {}
  ~Group();
};

// New arguments for a group of nodes. It is the program of the task that hands
// them to the thread that replays, and owned by that task until it has run or
// was dropped.
struct Update final : Program {
  std::vector<Call> calls;
  std::unique_ptr<Inputs> inputs;  // that the calls read; null: unchecked
  std::shared_ptr<Group> group;    // until then

  int run(Stream&, const DeviceQueue&, const uint64_t*, npu_failure&) override;
  void dropped(Stream&, const uint64_t*) override { delete this; }
};

struct Node {
  enum class Kind : uint8_t { kKernel, kTimestamp, kWait };
  static constexpr int kStart = -1;  // the beginning of the first stream

  Kind kind;
  bool signals = false;  // a kWait of another lane names this node
  uint32_t lane;         // index into the body's lanes
  uint32_t place = 0;    // in its lane, from 1
  int source = -1;       // index into the body's sources
  int wait_for = kStart;
  uint64_t draw = 0;  // offset from the first number that the replay takes
  Call call;
  TimeCell* cell = nullptr;
  Group* entered = nullptr;  // the group that begins here
  int previous = kStart;     // the node before it in its lane
  std::string line;
};

// Where a replay's numbers come from, and how many it takes.
struct CapturedSource {
  const void* id;
  std::unique_ptr<NumberSource> numbers;
  uint64_t count = 0;
};

// One replay runs at a time: submit() orders them, on whatever streams they
// are.
class Body final : public Program {
 public:
  Body(int device, uint64_t pool);
  ~Body();

  // The graph has no use for it any more: no update may begin or end.
  void leave_groups();

  // Names a stream whose last node nothing on the first stream waits for; ""
  // where there is none.
  std::string unjoined() const;

  // Queues a replay behind what `stream` has been given. False, with nothing
  // queued, when `failed`, a stream that it needs, has failed.
  bool submit(Stream& stream, Stream*& failed);

  int run(Stream& stream, const DeviceQueue& queue, const uint64_t* words,
          npu_failure& failure) override;
  void dropped(Stream& stream, const uint64_t* words) override;

  // Keeps the memory of the pool until all that follows is destroyed.
  const std::shared_ptr<GraphPool> graph_pool;
  const int device;
  const uint64_t pool;
  Captured captured;
  bool waits_for_peers = false;  // some of the work (foreign.h)
  std::vector<Node> nodes;       // in the order of the capture
  // Guards the calls of nodes in groups, which a replay may exchange.
  mutable std::mutex calls_mutex;
  std::deque<Lane> lanes;
  std::vector<std::shared_ptr<Group>> groups;
  // What it uses and does not own, without what updates replace; null:
  // unchecked.
  std::unique_ptr<Inputs> inputs;
  std::vector<CapturedSource> sources;
  // Set when the capture has ended.
  std::optional<Overwrites> overwrites;

 private:
  static constexpr uint64_t kAllLanes = ~uint64_t{0};
  // The words of a replay's task: the program, the lane, the number of the
  // replay, how many frees had been noted when it was queued, and the draws.
  static constexpr uint32_t kFirstDraw = 4;

  // Tells the observer which memory the next replay touches.
  void announce(Stream& stream);
  uint32_t n_words() const { return uint32_t(kFirstDraw + 2 * sources.size()); }
  void describe(Submission& s, uint64_t lane);
  void reserve_numbers(std::span<Submission> opened) const;
  bool open_lanes(Stream& stream, std::vector<Submission>& lanes,
                  Stream*& failed);
  Stream& stream_of(size_t lane, Stream& first);
  bool wait_for_torn(Stream& first, Stream*& failed);
  int run_node(Node& node, const DeviceQueue& queue, RunAhead& ahead,
               const uint64_t* words, Stream* timed, npu_failure& failure);
  int run_all(Stream& stream, const DeviceQueue& queue, const uint64_t* words,
              npu_failure& failure);
  int run_lane(Stream& stream, const DeviceQueue& queue, const uint64_t* words,
               npu_failure& failure);
  int finish(RunAhead& ahead, npu_failure& failure);
  Lane& awaited(const Node& wait);
  bool reach(Stream& stream, const Node& wait, uint64_t replay);
  int enter(Group& group, RunAhead& ahead, uint64_t ends, npu_failure& failure);
  void drop(const Stream& stream, uint64_t lane, size_t first) const;

  std::atomic<bool> submitting_{false};
  uint64_t replays_ = 0;
  Stream* last_stream_ = nullptr;
  uint64_t last_number_ = 0;
};

}  // namespace npu
