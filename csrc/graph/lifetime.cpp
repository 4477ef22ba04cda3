#include "csrc/graph/lifetime.h"

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/deferred_delete.h"

namespace npu {
namespace {

struct Pool {
  int users = 0;
  std::shared_ptr<ReplayMemory> memory;
  std::vector<std::function<void()>> kept;
};

struct State {
  DeferredDelete<Body> released;
  std::mutex mutex;  // guards the pools
  std::map<std::pair<int, uint64_t>, Pool> pools;
};

// Never destroyed: graphs may be released after static destruction.
State& state() {
  static State* const instance = new State;
  return *instance;
}

void leave_pool(int device, uint64_t pool) {
  std::vector<std::function<void()>> kept;
  {
    std::lock_guard lock(state().mutex);
    const auto at = state().pools.find({device, pool});
    if (--at->second.users) return;
    kept = std::move(at->second.kept);
    state().pools.erase(at);
  }
  allocator(device).free_pool(pool);
  for (const auto& release : kept) release();
}

class PoolHold {
 public:
  PoolHold(int device, uint64_t pool) : device_(device), pool_(pool) {
    std::lock_guard lock(state().mutex);
    ++state().pools[{device, pool}].users;
  }
  ~PoolHold() { leave_pool(device_, pool_); }
  PoolHold(const PoolHold&) = delete;

 private:
  const int device_;
  const uint64_t pool_;
};

}  // namespace

std::shared_ptr<const void> hold_pool(int device, uint64_t pool) {
  return std::make_shared<const PoolHold>(device, pool);
}

std::shared_ptr<ReplayMemory> replay_memory(int device, uint64_t pool) {
  std::lock_guard lock(state().mutex);
  std::shared_ptr<ReplayMemory>& memory =
      state().pools.at({device, pool}).memory;
  if (!memory) memory = std::make_shared<ReplayMemory>();
  return memory;
}

int pool_users(int device, uint64_t pool) {
  std::lock_guard lock(state().mutex);
  const auto at = state().pools.find({device, pool});
  return at == state().pools.end() ? 0 : at->second.users;
}

void keep_with_pool(int device, uint64_t pool, std::function<void()> release) {
  std::lock_guard lock(state().mutex);
  state().pools[{device, pool}].kept.push_back(std::move(release));
}

void destroy_elsewhere(std::unique_ptr<Body> body) noexcept {
  if (in_bad_fork()) {
    (void)body.release();  // its launchers do not exist here
    return;
  }
  const auto list = [device = body->device](std::vector<StreamPoint>& points) {
    for (Stream* s : streams(device)) points.push_back({s, s->tail()});
  };
  state().released.after(list, std::move(body));
}

void destroy_when_done(std::unique_ptr<Body> body) {
  destroy_elsewhere(std::move(body));
  collect_graphs();
}

void collect_graphs() { state().released.collect(); }

}  // namespace npu
