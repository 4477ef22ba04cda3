#include "csrc/graph/graveyard.h"

#include <map>
#include <mutex>
#include <utility>

#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/engine.h"

namespace npu {
namespace {

struct Point {
  Stream* stream;
  uint64_t number;
};

struct Grave {
  std::unique_ptr<Body> body;
  std::vector<Point> points;

  bool over() const {
    for (const Point& p : points)
      if (!p.stream->retired().reached(p.number)) return false;
    return true;
  }
};

struct State {
  std::mutex mutex;
  std::vector<Grave> graves;
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
  Grave grave{std::move(body), {}};
  for (Stream* s : streams(grave.body->device))
    grave.points.push_back({s, s->tail()});
  {
    std::lock_guard lock(state().mutex);
    state().graves.push_back(std::move(grave));
  }
  collect_graphs();
}

void collect_graphs() {
  std::vector<Grave> gone;
  {
    std::lock_guard lock(state().mutex);
    auto& graves = state().graves;
    for (size_t i = 0; i < graves.size();) {
      if (graves[i].over()) {
        gone.push_back(std::move(graves[i]));
        graves[i] = std::move(graves.back());
        graves.pop_back();
      } else {
        ++i;
      }
    }
  }
  for (Grave& grave : gone) {
    const int device = grave.body->device;
    const uint64_t pool = grave.body->pool;
    grave.body.reset();
    leave_pool(device, pool);
  }
}

}  // namespace npu
