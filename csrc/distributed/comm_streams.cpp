#include "csrc/distributed/comm_streams.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <set>

#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr int64_t kFirst = int64_t(StreamPool::kComm) * kStreamsPerPool;
constexpr int64_t kEnd = int64_t(kPools) * kStreamsPerPool;

struct Taken {
  std::mutex mutex;  // guards by_device
  std::map<int, std::set<int64_t>> by_device;
};
Taken& taken() {
  static auto* const instance = new Taken;
  return *instance;
}

}  // namespace

Stream& take_comm_stream(int device) {
  std::lock_guard lock(taken().mutex);
  std::set<int64_t>& ids = taken().by_device[device];
  for (int64_t id = kFirst; id < kEnd; ++id)
    if (ids.insert(id).second) return *find_stream(device, id);
  TORCH_CHECK(false, "npu:", device, ": all ", kEnd - kFirst,
              " communication streams are taken, one per process group and one "
              "per peer and direction of send and recv; destroy groups that "
              "are no longer used");
}

void give_comm_stream(Stream& stream) {
  std::lock_guard lock(taken().mutex);
  taken().by_device[stream.device()].erase(stream.id());
}

}  // namespace npu
