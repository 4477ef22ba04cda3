// Where the processes of this user leave files for readers, which process such
// a file belongs to, and whether that lives.
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

// A file that is closed at the end of a scope, which keeps the errno of what
// was done with it. -1: it could not be opened.
class OpenFile {
 public:
  explicit OpenFile(int file) : file_(file) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile();
  operator int() const { return file_; }

 private:
  const int file_;
};

struct OwnFolder {
  std::string path;         // "": there is none
  std::string passed_over;  // the folders that were not taken, and why
};

// Makes /dev/shm/NAME-UID, or where that is another user's, or cannot be made,
// $XDG_RUNTIME_DIR/NAME. Both lie in memory, and nobody else can write there.
//
// /dev/shm is asked first although anybody may make that folder before us: the
// runtime folder goes away when the user logs out, and nobody else can read in
// it. `npu_dispatch/observe/segment/folders.py` has the same two places.
OwnFolder own_folder(const std::string& name);

// Lets the group read a file or folder of ours that NPU_DISPATCH_SEGMENT_GROUP
// names, a name or a number. Returns why not, or "" where it may, or where none
// is named.
std::string open_to_group(const std::string& path);

// The process that a file in shared memory belongs to.
struct Owner {
  uint32_t pid;
  uint64_t process_start;
  uint64_t pid_namespace;
};
// Reads the owner from the beginning of a file; false where the file is not of
// this kind and version.
using ReadOwner = bool (*)(int file, Owner& owner);

// Whether the owner of an open file is known to have ended. In this namespace
// its number and start tell; elsewhere the lock does.
// npu_dispatch/observe/segment/untrusted_file.py has the same rule. Nobody
// removes or renames the file of a process that may live.
bool has_ended(int file, const Owner& owner);

// Makes room for a file of this process; what an ended one left under the name
// is removed. False, with EEXIST: the name is another process's.
bool make_way(const std::string& path, ReadOwner read_owner);
// Marks an open file as that of a process that lives: this one.
void lock_as_owner(int file);

// Renames the files that ended processes left in `directory` to NAME.dead, for
// a postmortem. Removes files that have had such a name for an hour, and all
// but the newest `kept` of them. Files of another kind or version stay.
// npu_dispatch/observe/segment/folders.py has the same rule for readers.
void remove_abandoned(const std::string& directory, ReadOwner read_owner,
                      size_t kept);
inline constexpr char kDeadSuffix[] = ".dead";
inline constexpr int64_t kDeadKeptS = 3600;
inline constexpr size_t kDeadSegments = 16;

// Whether a folder's files live in memory and are never written to a disk.
bool in_memory(const std::string& directory);

}  // namespace npu
