#include "csrc/graph/graveyard.h"

#include <map>
#include <mutex>

#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/engine.h"
#include "csrc/taskqueue/graveyard.h"

namespace npu {
namespace {

// A graph, and its part in its pool.
struct Dead {
  std::unique_ptr<Body> body;

  ~Dead() {
    const int device = body->device;
    const uint64_t pool = body->pool;
    body.reset();
    leave_pool(device, pool);
  }
};

struct State {
  Graveyard<Dead> graveyard;
  std::mutex mutex;                               // of the pools
  std::map<std::pair<int, uint64_t>, int> pools;  // users of each
};

// Never destroyed: graphs may be released after static destruction.
State& state() {
  static State* const instance = new State;
  return *instance;
}

}  // namespace

void hold_pool(int device, uint64_t pool) {
  std::lock_guard lock(state().mutex);
  ++state().pools[{device, pool}];
}

void leave_pool(int device, uint64_t pool) {
  {
    std::lock_guard lock(state().mutex);
    const auto at = state().pools.find({device, pool});
    if (--at->second) return;
    state().pools.erase(at);
  }
  allocator(device).free_pool(pool);
}

void bury(std::unique_ptr<Body> body) {
  if (in_bad_fork()) {
    (void)body.release();  // its launchers do not exist here
    return;
  }
  std::vector<StreamPoint> points;
  for (Stream* s : streams(body->device)) points.push_back({s, s->tail()});
  state().graveyard.bury(std::make_unique<Dead>(std::move(body)),
                         std::move(points));
  collect_graphs();
}

void collect_graphs() { state().graveyard.collect(); }

}  // namespace npu
