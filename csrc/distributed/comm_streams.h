// Streams whose launchers wait for the network.
#pragma once

#include <cstdint>
#include <utility>

namespace npu {

class Stream;

// A place in a stream: it is reached once `number` tasks have retired.
struct Point {
  Stream* stream = nullptr;
  uint64_t number = 0;
};

// Whether what the stream was given before this place has failed.
bool failed_before(const Point& point);

// What a stream is taken for. Two kinds never share one: ranks that send to
// each other at once go on, whatever else waits.
enum class CommKind { kCollective, kBatch, kSend, kRecv };

// A stream that is taken for a launch. Until this object ends, nobody else
// finds the stream idle.
class CommStream {
 public:
  CommStream() = default;
  CommStream(Stream& stream, bool shared) : stream_(&stream), shared_(shared) {}
  CommStream(CommStream&& other) noexcept
      : stream_(other.stream_), shared_(other.shared_) {
    other.stream_ = nullptr;
  }
  CommStream& operator=(CommStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~CommStream();

  Stream& operator*() const { return *stream_; }
  // Whether the stream has tasks that the launch need not come behind.
  bool shared() const { return shared_; }

 private:
  Stream* stream_ = nullptr;
  bool shared_ = false;
};

// Returns a stream of the device for what is to come behind `last` (without a
// stream: behind nothing). It is the stream of `last` while that has not been
// reached, or has failed; but messages do not come behind others that were
// queued there since. Else it is a stream that has nothing to do, or where all
// of the kind are at work, the one with the least. Throws where all have
// failed.
// `home` is a number of the caller's own. Where an observer is told of orders,
// its stream is the first choice: what others have done by now, which is
// chance, then neither orders two calls nor leaves them without an order.
CommStream take_comm_stream(int device, CommKind kind, uint64_t home,
                            const Point& last);

}  // namespace npu
