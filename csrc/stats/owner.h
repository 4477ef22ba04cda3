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

// The process that a file in shared memory is of.
struct Owner {
  uint32_t pid;
  uint64_t process_start;
  uint64_t pid_namespace;
};
// Reads it from the beginning of a file; false where that is none of the kind
// and version.
using ReadOwner = bool (*)(int file, Owner& owner);
bool read_segment_owner(int file, Owner& owner);

// Whether the file is that of a process whose number does not count here.
bool is_of_another_namespace(const std::string& path, ReadOwner read_owner);

// Gives the files that dead processes left in `directory` the name NAME.dead,
// for a postmortem, and removes what has had such a name for an hour, and all
// but the newest `kept` of them. Leaves those of other namespaces of process
// numbers, and what is none of the kind.
// npu_dispatch/processes/remains.py has the same rule for readers.
void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept);
inline constexpr char kDeadSuffix[] = ".dead";
inline constexpr int64_t kDeadKeptS = 3600;
inline constexpr size_t kDeadSegments = 16;

// Whether a folder's files are kept in memory, so never written to a disk.
bool in_memory(const std::string& directory);

}  // namespace npu
