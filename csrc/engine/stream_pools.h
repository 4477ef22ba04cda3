// Hands out streams of pools, and decides what happens when one has no more.
#pragma once

#include "csrc/engine/engine.h"

namespace npu {

// The pool of the streams that the runtime's C-like interface makes. It is
// outside of the round robin, because each stream has an owner.
inline constexpr StreamPool kOwnedPool = StreamPool(1);

// How many streams the pool has; the variable STREAMS_PER_DEVICE may lower it.
int pool_size(StreamPool pool);

// The next stream of a pool, round robin.
Stream& next_stream(int device, StreamPool pool);

// Strict: next_stream() throws std::runtime_error rather than hand out a
// stream a second time. Off at first, unless NPU_STRICT_STREAMS=1.
void set_strict_pools(bool strict);
bool strict_pools();

// A stream that nobody else owns; null when all kStreamsPerPool are taken.
Stream* take_owned_stream(int device);
// Gives the stream back, once its work is done. False: it was not taken.
bool give_owned_stream(Stream& stream);

}  // namespace npu
