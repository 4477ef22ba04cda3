// Which process a process number stands for.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace npu {

// When `pid` started, in clock ticks since boot; 0 when there is no such
// process, or it cannot be told. Together with the pid and its namespace it
// identifies a process for good.
uint64_t process_start(pid_t pid);

// Where the stack of a process begins, which exec() changes; 0 when it cannot
// be told, as of another user's process.
uint64_t stack_start(pid_t pid);

// Its parent's number; 0 when that is of another namespace, or cannot be told.
pid_t parent_of(pid_t pid);

// The namespace of process numbers that this process is in; 0 when that is not
// known, or when /proc is that of another one: its entries are then of other
// processes than getpid() and the like name.
uint64_t pid_namespace();

}  // namespace npu
