// Messages between the ranks of a group, over links between those of one host,
// and over Gloo's matched sends between the others.
//
// This class hides a weakness of Gloo, which aborts the process on a message
// that is longer than its receiver expects: no data is sent before both sides
// have said, in a frame of fixed size, what they are about to do. Ranks that
// disagree find that out from the frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "csrc/distributed/neighbours.h"

namespace npu {

using Milliseconds = std::chrono::milliseconds;

// Bytes of the host's memory, or of the device's, which is host memory, too.
struct Bytes {
  void* data = nullptr;
  size_t size = 0;
};

// What all ranks must agree on.
struct Agreement {
  char name[24] = {};  // "all_reduce"
  uint64_t seq = 0;
  int64_t numel = 0;      // where all ranks pass the same number; else 0
  uint64_t captured = 0;  // 1 + the number of the call that a graph captured
  int32_t root = -1;
  int8_t dtype = -1, reduce = -1;
  uint8_t formats = 0;  // MemoryFormats of what is moved as it is; 0: of none
};

struct Collective {
  Agreement agreed;
  uint32_t site = 0;  // of the launch, for reports of a disagreement
  // Set once every rank has called; may be null.
  std::atomic<uint64_t>* all_here_ns = nullptr;
  Milliseconds timeout{0};
};

// A reduction in which each rank reduces a chunk. Of what arrives, a few
// segments are held at a time: they are still in the cache when they are
// reduced, and the first ones are on their way back while others arrive.
struct SegmentedReduction {
  static constexpr size_t kSegment = 1 << 20;  // bytes, whatever the dtype
  static constexpr size_t kHeld = 4;           // segments of each rank

  std::vector<Bytes> send;    // by rank: my values of its chunk
  std::vector<Bytes> result;  // by rank: where its result goes; empty: nowhere
  Bytes kept;                 // my chunk of the result
  char* room;
  // Reduces `size` bytes at `offset` of my chunk into `kept`. The values of
  // rank p are at [held][p] of `room`, which is [kHeld][ranks][kSegment].
  std::function<void(size_t offset, size_t size, size_t held)> reduce;

  bool returns() const { return !result.empty(); }
};

// One send or recv of a batch. `peer` is -1 for a recv from any rank, which
// must be alone in its batch; it is set when the sender is known.
struct Message {
  bool sends;
  int peer;
  uint32_t tag;
  Bytes bytes;
  int8_t dtype;
  uint8_t formats;
};

class Transport {
 public:
  // Bytes of payload that travel within the frame.
  static constexpr size_t kInline = 768;
  // The largest tag of a send or recv; collectives use the tags above.
  static constexpr int kMostTag = (1 << 28) - 1;

  // `gloo` is null for a group of one.
  Transport(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size);
  ~Transport();

  // Takes the links with ranks of this host. To be called before any call.
  void use(Neighbours neighbours);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sends out[p] to each other rank p and receives in[p] from it. All ranks of
  // the group must call it. Throws where it fails, with a text that names
  // ranks.
  void exchange(const Collective& call, const std::vector<Bytes>& out,
                const std::vector<Bytes>& in);
  // Reduces, and sends each rank what the others have reduced. Throws as
  // exchange() does.
  void reduce(const Collective& call, const SegmentedReduction& parts);
  // Sends and recvs that do not wait for each other.
  void move(std::vector<Message>& messages, const Collective& call);

  // Ends waits at once, and lets later calls fail, with this text. Any thread.
  void abort(const std::string& why);
  // That text; "": it was not aborted.
  std::string aborted();

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  class Batch;
  struct Frame;

  // Returns each rank's frame once all ranks have said what they are about to
  // do; throws where they disagree.
  std::unique_ptr<Frame[]> agree(const Collective& call,
                                 const std::vector<Bytes>& out,
                                 const std::vector<Bytes>& in);

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  std::unique_ptr<Links> links_;  // null: there are none
  bool all_are_linked_ = false;
  const int rank_, size_;
  std::vector<int> peers_;  // each rank begins with its successor
  std::mutex mutex_;        // guards the rest
  std::list<WorkPtr> waited_for_;
  std::string aborted_;
};

// Sets what turns a launch site into text. To be called before the first group.
using SiteName = std::string (*)(uint32_t site);
void set_site_name(SiteName name);
// "train.py:88 in step"; "": not known.
std::string launch_line(uint32_t site);

}  // namespace npu
