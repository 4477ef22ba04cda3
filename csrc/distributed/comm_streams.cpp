#include "csrc/distributed/comm_streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <mutex>

#include "csrc/engine/engine.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr int64_t kFirst = int64_t(StreamPool::kComm) * kStreamsPerPool;
constexpr int kStreams = kCommPools * kStreamsPerPool;

// The streams of each kind, of those that a device has.
struct Range {
  int64_t begin, end;
  bool contains(int64_t id) const { return id >= begin && id < end; }
};
Range streams_of(CommKind kind) {
  static_assert(kStreams == 128);
  switch (kind) {
    case CommKind::kCollective:
      return {kFirst, kFirst + 48};
    case CommKind::kBatch:
      return {kFirst + 48, kFirst + 64};
    case CommKind::kSend:
      return {kFirst + 64, kFirst + 96};
    case CommKind::kRecv:
      break;
  }
  return {kFirst + 96, kFirst + 128};
}

// How many launches are under way on each stream.
struct Launches {
  std::mutex mutex;  // guards by_device
  std::map<int, std::array<int, kStreams>> by_device;
};
Launches& launches() {
  static auto* const instance = new Launches;
  return *instance;
}

using Busy = std::array<int, kStreams>;

uint64_t todo_of(const Stream& stream, const Busy& busy) {
  return stream.unfinished() + uint64_t(busy[stream.id() - kFirst]);
}

// Whether a launch behind `last` goes to the same stream.
bool stays(CommKind kind, const Point& last, const Busy& busy) {
  const Stream& stream = *last.stream;
  if (failed_before(last)) return true;  // it is to be told
  if (stream.retired().reached(last.number)) return false;
  return kind == CommKind::kCollective ||
         (stream.tail() == last.number && !busy[stream.id() - kFirst]);
}

// The stream with the least to do, from `home` on; null where all have failed.
Stream* choose(int device, Range range, uint64_t home, const Busy& busy) {
  Stream* best = nullptr;
  uint64_t least = UINT64_MAX;
  const auto n = uint64_t(range.end - range.begin);
  for (uint64_t i = 0; i < n && least; ++i) {
    Stream& stream =
        *find_stream(device, range.begin + int64_t((home % n + i) % n));
    // A capture takes the stream's tasks, and those alone.
    if (stream.failed() || stream.sink()) continue;
    if (todo_of(stream, busy) >= least) continue;
    best = &stream;
    least = todo_of(stream, busy);
  }
  return best;
}

}  // namespace

bool failed_before(const Point& point) {
  return error_before(*point.stream, point.number) != nullptr;
}

CommStream::~CommStream() {
  if (!stream_) return;
  std::lock_guard lock(launches().mutex);
  --launches().by_device[stream_->device()][stream_->id() - kFirst];
}

CommStream take_comm_stream(int device, CommKind kind, uint64_t home,
                            const Point& last) {
  const Range range = streams_of(kind);
  std::lock_guard lock(launches().mutex);
  Busy& busy = launches().by_device[device];
  Stream* stream = last.stream;
  const bool same =
      stream && range.contains(stream->id()) && stays(kind, last, busy);
  const bool checked = observed(Observer::kTasks);
  if (!same) stream = choose(device, range, checked ? home : 0, busy);
  TORCH_CHECK(stream, "npu:", device, ": all ", range.end - range.begin,
              " communication streams of this kind have failed; "
              "torch.npu.reset_device(",
              device, ") makes them take work again");
  CommStream taken(*stream, !same && todo_of(*stream, busy));
  ++busy[stream->id() - kFirst];
  return taken;
}

}  // namespace npu
