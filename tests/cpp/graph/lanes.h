// Captures and replays on several streams, for tests.
#pragma once

#include "csrc/graph/graph.h"
#include "tests/cpp/kernels.h"

namespace npu::check {

inline Stream& side_stream() { return next_stream(0, StreamPool::kNormal); }

inline bool replay(Graph& graph, Stream& stream) {
  Stream* failed = nullptr;
  return graph.replay(stream, failed);
}

// The text with which a capture refused the call; empty when it did not.
template <typename Call>
std::string refused(Call call) {
  return thrown<CaptureError>(call);
}

#define EXPECT_REFUSED(expression, part) \
  EXPECT_CONTAINS(refused([&] { expression; }), part)

// Makes `other` go on only after what `stream` has been given.
inline void join(Stream& stream, Stream& other) {
  Event event(Timing::kOff);
  event.record(stream);
  EXPECT_TRUE(other.wait_for(stream, event.number()));
}

// Which streams an observer is told of that have been given a task.
struct Watching final : Observer {
  std::vector<const Stream*> told;
  void published(Stream& stream, bool) override { told.push_back(&stream); }
};

// Two streams that append in turn.
inline void capture_two_lanes(Graph& graph, Stream& a, Stream& b,
                              Numbers& got) {
  graph.capture_begin(a, 0, CaptureMode::kGlobal);
  append(a, got, 1);
  join(a, b);
  append(b, got, 2);
  join(b, a);
  append(a, got, 3);
  graph.capture_end(a);
}

// What `body` submits is the graph.
template <typename Body>
void capture(Graph& graph, Stream& stream, Body body, uint64_t pool = 0) {
  graph.capture_begin(stream, pool, CaptureMode::kGlobal);
  body();
  graph.capture_end(stream);
}

// Two streams, a graph of both, and what its kernels append.
struct Lanes {
  Stream &a = side_stream(), &b = side_stream();
  Numbers got;
  Graph graph;
  void append(Stream& stream, uint64_t value) {
    check::append(stream, got, value);
  }
  // The second stream does `body` between a fork and a join, after which the
  // first appends `last`, if that is not 0.
  template <typename Body>
  void capture(Body body, uint64_t last = 0) {
    check::capture(graph, a, [&] {
      join(a, b);
      body();
      join(b, a);
      if (last) append(a, last);
    });
  }
  bool replay() { return check::replay(graph, a); }
  void settle() {
    drain(a);
    drain(b);
  }
  void clear_errors() {
    a.clear_error();
    b.clear_error();
  }
};

}  // namespace npu::check
