// Finds the folder where the processes of this user leave files for readers.
#pragma once

#include <string>

namespace npu {

struct OwnFolder {
  std::string path;         // "": there is none
  std::string passed_over;  // the folders that were not taken, and why
};

// Makes /dev/shm/NAME-UID, or where that is another user's, or cannot be made,
// $XDG_RUNTIME_DIR/NAME. Both lie in memory, and nobody else can write there.
//
// /dev/shm is asked first although anybody may make that folder before us: the
// runtime folder goes away when the user logs out, and nobody else can read in
// it. `npu_dispatch/stats/folders.py` has the same two places.
OwnFolder own_folder(const std::string& name);

// Lets the group read an open file or folder of ours that
// NPU_DISPATCH_SEGMENT_GROUP names, a name or a number. Returns why not, or ""
// where it may, or where none is named.
std::string open_to_group(int file);

}  // namespace npu
