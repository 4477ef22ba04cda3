#include "csrc/graph/lifetime.h"

#include <map>
#include <mutex>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/deferred_delete.h"

namespace npu {
namespace {

struct State {
  DeferredDelete<Body> released;
  std::mutex mutex;  // guards the pools
  std::map<std::pair<int, uint64_t>, std::weak_ptr<GraphPool>> pools;
};

// Never destroyed: graphs may be released after static destruction.
State& state() {
  static State* const instance = new State;
  return *instance;
}

}  // namespace

GraphPool::GraphPool(int device, uint64_t id) : device_(device), id_(id) {
  allocator(device).hold_pool(id);
}

GraphPool::~GraphPool() {
  {
    std::lock_guard lock(state().mutex);
    const auto at = state().pools.find({device_, id_});
    // A capture may have made the pool again meanwhile.
    if (at != state().pools.end() && at->second.expired())
      state().pools.erase(at);
  }
  allocator(device_).release_pool(id_, false);
  for (const auto& release : kept_) release();
}

void GraphPool::keep(std::function<void()> release) {
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(release));
}

std::shared_ptr<GraphPool> graph_pool(int device, uint64_t id) {
  std::lock_guard lock(state().mutex);
  std::weak_ptr<GraphPool>& known = state().pools[{device, id}];
  std::shared_ptr<GraphPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<GraphPool>(device, id);
  return pool;
}

int pool_users(int device, uint64_t id) {
  std::lock_guard lock(state().mutex);
  const auto at = state().pools.find({device, id});
  return at == state().pools.end() ? 0 : int(at->second.use_count());
}

void destroy_elsewhere(std::unique_ptr<Body> body) noexcept {
  if (in_bad_fork()) {
    (void)body.release();  // its launchers do not exist here
    return;
  }
  const auto list = [device = body->device](std::vector<StreamPoint>& points) {
    for (Stream* s : streams(device)) points.push_back({s, s->tail()});
  };
  state().released.keep(list, std::move(body));
}

bool collect_graphs() { return state().released.collect(); }

}  // namespace npu
