// Which process a file in shared memory belongs to, and whether it lives.
//
// Processes of several containers may share the folder. A process number means
// nothing in another namespace, so each owner locks its file
// (F_OFD_SETLK): the kernel lifts the lock when the process ends, however it
// does, and everybody who can open the file sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "csrc/base/process_id.h"

namespace npu {

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

enum class Life { kLives, kEnded, kUnknown };

// Whether the owner of an open file lives. In this namespace its number and
// start tell; elsewhere the lock does. npu_dispatch/system/untrusted_file.py
// has the same rule. Nobody removes or renames a file unless its
// owner is known to have ended.
Life life_of(int file, const Owner& owner);

// This process's own file, made and locked.
struct OwnFile {
  std::string path;
  int file = -1;     // open, and locked, as long as the process lives; -1: none
  ino_t number = 0;  // its inode
};

// Makes the file `directory`/PID, or PID-NAMESPACE where the first one is, or
// may be, that of a process of another namespace which lives. What an ended
// process left under these names is removed. Without a file there is an errno.
OwnFile make_own_file(const std::string& directory, ReadOwner read_owner);
// Removes the file, unless its name is another file's by now.
void remove_own_file(const OwnFile& own);
// Closes the inherited descriptor in a forked child: its parent's lock would
// else last as long as the child.
void release_after_fork(OwnFile& own);

// Renames the files that ended processes left in `directory` to NAME.dead, for
// a postmortem. Removes files that have had such a name for an hour, and all
// but the newest `kept` of them. Files of another kind or version stay.
// npu_dispatch/processes/remains.py has the same rule for readers.
void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept);
inline constexpr char kDeadSuffix[] = ".dead";
inline constexpr int64_t kDeadKeptS = 3600;
inline constexpr size_t kDeadSegments = 16;

// Whether a folder's files live in memory and are never written to a disk.
bool in_memory(const std::string& directory);

}  // namespace npu
