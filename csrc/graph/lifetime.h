// Destroys graphs that nobody wants any more once no queued replay runs them.
#pragma once

#include <functional>
#include <memory>

#include "csrc/graph/body.h"

namespace npu {

// Keeps the pool's memory, which goes back with the last of those that keep it.
std::shared_ptr<const void> hold_pool(int device, uint64_t pool);
// What the graphs that hold the pool overwrite there.
std::shared_ptr<ReplayMemory> replay_memory(int device, uint64_t pool);
// How many graphs hold the pool.
int pool_users(int device, uint64_t pool);
// Calls `release` when the last graph of the pool has left it. For memory that
// captures took from elsewhere.
void keep_with_pool(int device, uint64_t pool, std::function<void()> release);

// Destroys `body` once everything that its device has been given so far is
// done: then nothing reads its results either.
void destroy_when_done(std::unique_ptr<Body> body);
// The same for a thread that ends, and cannot wait for the interpreter, which
// may be needed: collect_graphs() destroys it.
void destroy_elsewhere(std::unique_ptr<Body> body) noexcept;

// Destroys the graphs that may be destroyed by now. Does not wait.
void collect_graphs();

}  // namespace npu
