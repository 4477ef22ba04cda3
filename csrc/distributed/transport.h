// Messages between the ranks of a group, over Gloo's matched sends.
//
// Gloo's faults end here: nothing is sent before both sides have said in a
// frame of fixed size what they are about to do, so a message is never longer
// than its receiver expects, and ranks that disagree are told so.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace npu {

using Milliseconds = std::chrono::milliseconds;

// Bytes of the host, or of the device, whose memory is the host's.
struct Bytes {
  void* data = nullptr;
  size_t size = 0;
};

// What all ranks must agree on.
struct Agreement {
  char name[24] = {};  // "all_reduce"
  uint64_t seq = 0;
  int64_t numel = 0;  // where all ranks pass equally many; else 0
  int32_t root = -1;
  int8_t dtype = -1, reduce = -1;
};

struct Collective {
  Agreement agreed;
  uint32_t site = 0;  // of the launch, for the rank that disagrees
  Milliseconds timeout{0};
};

// A reduction of which each rank computes a chunk. Of what arrives, a few
// segments are held at a time: they are still in the cache when they are added,
// and the first are on their way back while others come.
struct SegmentedReduction {
  static constexpr size_t kSegment = 1 << 20;  // bytes; of any dtype
  static constexpr size_t kHeld = 4;           // segments of each rank

  std::vector<Bytes> send;    // by rank: its chunk, of mine
  std::vector<Bytes> result;  // by rank: where that comes back; empty: nowhere
  Bytes kept;                 // my chunk of the result
  char* room;
  // Reduces `size` bytes at `offset` of my chunk into `kept`. Those of rank p
  // are in `room`, which is [kHeld][ranks][kSegment], at [held][p].
  std::function<void(size_t offset, size_t size, size_t held)> reduce;

  bool returns() const { return !result.empty(); }
};

// One send or recv of a batch. peer -1: any (recv alone); set when known.
struct Message {
  bool sends;
  int peer;
  uint32_t tag;
  Bytes bytes;
  int8_t dtype;
};

class Transport {
 public:
  // Payload that travels with the frame.
  static constexpr size_t kInline = 768;
  // Largest tag of a send or recv: the rest is the collectives'.
  static constexpr int kMostTag = (1 << 28) - 1;

  // `gloo` is null for a group of one.
  Transport(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sends out[p] to each rank p and receives in[p]; [rank] is left alone. All
  // ranks of the group. Throws what went wrong, naming the ranks.
  void exchange(const Collective& call, const std::vector<Bytes>& out,
                const std::vector<Bytes>& in);
  // Reduces, and sends each rank what the others have reduced. As exchange().
  void reduce(const Collective& call, const SegmentedReduction& parts);
  // Sends and recvs that do not wait for each other.
  void move(std::vector<Message>& messages, const Collective& call);

  // Waits end at once and later calls fail, with this text. Any thread.
  void abort(const std::string& why);

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Pending {
    int peer;
    WorkPtr work;
  };
  class Batch;
  struct Frame;

  // Each rank's frame, once all have said what they are about to do and agree.
  std::unique_ptr<Frame[]> agree(const Collective& call,
                                 const std::vector<Bytes>& out,
                                 const std::vector<Bytes>& in);

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const int rank_, size_;
  std::vector<int> peers_;  // each rank begins with its successor
  std::mutex mutex_;        // guards the rest
  std::list<WorkPtr> waited_for_;
  std::string aborted_;
};

// What a launch site is called; before the first group.
using SiteName = std::string (*)(uint32_t site);
void set_site_name(SiteName name);

}  // namespace npu
