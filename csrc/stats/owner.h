// Finds out whose segment a file is, and whether that process still lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace npu {

// When `pid` started, in clock ticks since boot; 0 when there is no such
// process. Together with the pid it identifies a process for good.
uint64_t process_start(pid_t pid);

// The namespace of process numbers that this process is in; 0 when that is not
// known.
uint64_t pid_namespace();

// The process that a file in shared memory belongs to.
struct Owner {
  uint32_t pid;
  uint64_t process_start;
  uint64_t pid_namespace;
};
// Reads the owner from the beginning of a file; false where the file is not of
// this kind and version.
using ReadOwner = bool (*)(int file, Owner& owner);
bool read_segment_owner(int file, Owner& owner);

// Whether the file belongs to a process of another namespace of process
// numbers.
bool is_of_another_namespace(const std::string& path, ReadOwner read_owner);

// Renames the files that dead processes left in `directory` to NAME.dead, for a
// postmortem. Removes files that have had such a name for an hour, and all but
// the newest `kept` of them. Leaves alone the files of other namespaces of
// process numbers, and files of another kind.
// npu_dispatch/processes/remains.py has the same rule for readers.
void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept);
inline constexpr char kDeadSuffix[] = ".dead";
inline constexpr int64_t kDeadKeptS = 3600;
inline constexpr size_t kDeadSegments = 16;

// Whether a folder's files live in memory and are never written to a disk.
bool in_memory(const std::string& directory);

}  // namespace npu
