// Turns the engine's failures into the exceptions that users of torch expect.
#pragma once

#include <string>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;
struct StreamError;

// Throws the stream's pending error, if there is one, as the exception type
// its failed kernel threw. The error stays with the stream. First it tells what
// kernels have warned of.
void raise_if_failed(const Stream& stream);

// The same, for a caller that knows that there is an error.
[[noreturn]] void raise_stream_error(const Stream& stream);

// The same, for an error that was taken from its stream.
[[noreturn]] void raise_error(const StreamError& error);

// Throws torch.OutOfMemoryError: the host has no memory for a call of `op`.
[[noreturn]] void raise_no_host_memory(const char* op);

// Throws unless device work is possible here: after a fork it is not. With a
// device: also where that does not exist.
void check_usable();
void check_usable(int device);

// Throws RuntimeError for a device index that does not exist.
void check_device(int device);

// Turns the exception being handled into a failure record; returns its code.
int describe_exception(npu_failure& failure) noexcept;

}  // namespace npu
