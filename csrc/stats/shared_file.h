// Files in memory that several processes map.
//
// Their memory is taken before anybody touches it: touching a mapped page that
// has none, since /dev/shm is full or the file is shorter, raises SIGBUS.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "csrc/stats/owner.h"

namespace npu {

// Takes the memory of bytes [at, at + bytes) of an open file, and makes it so
// long where it is shorter. False, with an errno, where there is none.
bool allocate_pages(int file, size_t at, size_t bytes);

// Maps those bytes, in place of what is mapped at `over` if that is given.
// Null, with an errno, where the file is shorter or cannot be mapped.
void* map_pages(int file, size_t at, size_t bytes, void* over = nullptr);

// This process's own file in a folder: locked by it as long as it lives
// (owner.h), and open.
class SharedFile {
 public:
  // Makes `directory`/PID, or PID-NAMESPACE where the first one is, or may be,
  // that of a process of another namespace which lives, with so many zeros.
  // What an ended process left under these names is removed. False, with an
  // errno, where there can be no file; remove() then takes away what there is.
  bool make(const std::string& directory, ReadOwner read_owner, size_t bytes);
  bool is_made() const { return number_ != 0; }
  // "" where there is no file, or it has been removed.
  const std::string& path() const { return path_; }

  // As the functions above.
  bool allocate(size_t at, size_t bytes) const;
  void* map(size_t at, size_t bytes, void* over = nullptr) const;

  // Removes the file, unless its name is another file's by now. What is mapped
  // stays; nothing else can be mapped or allocated.
  void remove();
  // Closes the inherited descriptor in a forked child, which has no file then:
  // its parent's lock would else last as long as the child.
  void release_after_fork();

 private:
  int open_again() const;
  void close_own();

  std::string path_;
  int file_ = -1;     // which holds the lock
  ino_t number_ = 0;  // its inode; 0: none was made
};

}  // namespace npu
