// Destroys graphs that nobody wants any more once no queued replay runs them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/graph/body.h"

namespace npu {

// The private pool of a device that some graphs take their memory from. They
// own it together.
class GraphPool final : public ReplayMemory {
 public:
  GraphPool(int device, uint64_t id);
  ~GraphPool();

  // Calls `release` when the last graph of the pool has left it. For memory
  // that captures took from elsewhere.
  void keep(std::function<void()> release);

 private:
  const int device_;
  const uint64_t id_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::function<void()>> kept_;
};

// The pool of that number, which the graphs that hold it share.
std::shared_ptr<GraphPool> graph_pool(int device, uint64_t id);
// How many graphs hold the pool.
int pool_users(int device, uint64_t id);

// Lets collect_graphs() destroy `body` once everything that its device has been
// given so far is done: then nothing reads its results either. Does not wait
// for the interpreter, which destroying it may need.
void destroy_elsewhere(std::unique_ptr<Body> body) noexcept;

// Destroys the graphs that may be destroyed by now, and returns whether there
// was any. Does not wait.
bool collect_graphs();

}  // namespace npu
