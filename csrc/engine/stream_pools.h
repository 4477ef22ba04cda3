// How the pools of streams treat those who ask for more than there are.
#pragma once

#include "csrc/engine/engine.h"

namespace npu {

// Streams that the runtime's own C-like interface makes: a pool of their own,
// outside the round robin, because each has an owner.
inline constexpr StreamPool kOwnedPool = StreamPool(1);

// How many streams the pool has; NPU's STREAMS_PER_DEVICE may lower it.
int pool_size(StreamPool pool);

// The next stream of a pool, round robin.
Stream& next_stream(int device, StreamPool pool);

// Strict: next_stream() throws std::runtime_error rather than hand out a
// stream a second time. Off at first, unless NPU_STRICT_STREAMS=1.
void set_strict_pools(bool strict);
bool strict_pools();

// A stream that nobody else owns; null when all kStreamsPerPool are taken.
Stream* take_owned_stream(int device);
// Gives it back, once its work is done. False: it was not taken.
bool give_owned_stream(Stream& stream);

}  // namespace npu
