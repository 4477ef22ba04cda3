// A graph as its user holds it: captured once, replayed often.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/graph/body.h"
#include "csrc/graph/capture.h"

namespace npu {

// A number for a private memory pool; graphs that are given it share the pool.
uint64_t new_pool();

// Not thread-safe. Throws CaptureError and std::runtime_error.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  ~Graph();

  // Everything that `stream` was given must be done. `pool`: 0 makes a new one.
  // `check_inputs`: replays throw where memory that the graph uses and does not
  // own has been freed.
  void capture_begin(Stream& stream, uint64_t pool, CaptureMode mode,
                     bool check_inputs = false);
  void capture_end(Stream& stream);

  // Queues the captured work on `stream`, which is of the graph's device.
  // False: `failed` has failed.
  bool replay(Stream& stream, Stream*& failed) {
    if (!body_) [[unlikely]]
      nothing_captured("replay()");
    if (body_->inputs && !body_->inputs->alive()) [[unlikely]]
      input_missing();
    return body_->submit(stream, failed);
  }

  // Frees graph and memory when nothing queued uses them any more.
  void reset();

  // Throws where nothing is or has been captured.
  uint64_t pool() const;
  // Where it was captured; 0 before the first capture.
  int device() const { return device_; }
  // Null before the end of a capture.
  Body* body() const { return body_.get(); }
  bool capturing() const { return Capture::get().is_of(this); }
  bool one_stream() const { return !body_ || body_->lanes.size() == 1; }

  // What the layer above notes where the capture begins: a state of the
  // process, and a number for its own use.
  struct Noted {
    std::shared_ptr<const void> what;
    uint64_t number = 0;
  } noted;

  // Throws when there is nothing to replay.
  [[noreturn]] void nothing_captured(const char* what) const;

 private:
  [[noreturn]] void input_missing() const;

  std::unique_ptr<Body> body_;
  uint64_t pool_ = 0;
  int device_ = 0;
};

// What a graph consists of, for people to look at.
struct TensorInfo {
  std::vector<int64_t> sizes, strides;  // strides in elements
  uint32_t itemsize;                    // bytes
  bool read, written;
  uint64_t address;
};

struct NodeInfo {
  std::string op;
  int64_t stream;
  std::string line;  // "file.py:12", or ""
  uint64_t bytes;    // of its tensors, each counted without gaps
  std::vector<TensorInfo> tensors;
  std::vector<int> after;  // nodes that end before it starts
};

// The nodes, in the order of the capture.
std::vector<NodeInfo> describe(const Body& body);

}  // namespace npu
