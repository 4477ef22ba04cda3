// Whose segment a file is, and whether that process still lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace npu {

// When `pid` started, in clock ticks since boot; 0 when there is no such
// process. With the number it names a process for good.
uint64_t process_start(pid_t pid);

// Where process numbers of this process count; 0 when that cannot be told.
uint64_t pid_namespace();

// Whether the file is the segment of a process whose number does not count
// here.
bool is_of_another_namespace(const std::string& path);

// Removes from `directory` the segments of processes that have died. Leaves
// those of other namespaces of process numbers, and what is no segment.
void remove_abandoned(const std::string& directory);

// Whether a folder's files are kept in memory, so never written to a disk.
bool in_memory(const std::string& directory);

}  // namespace npu
