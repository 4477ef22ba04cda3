#include "csrc/stats/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace npu {

bool allocate_pages(int file, size_t at, size_t bytes) {
  // A signal interrupts and undoes the call, and a timer of the program may
  // send one again and again.
  constexpr int kTries = 100;
  errno = EINTR;
  for (int i = 0; i < kTries && errno == EINTR; ++i)
    errno = posix_fallocate(file, off_t(at), off_t(bytes));
  return errno == 0;
}

void* map_pages(int file, size_t at, size_t bytes, void* over) {
  struct stat info;
  if (fstat(file, &info)) return nullptr;
  if (size_t(info.st_size) < at + bytes) {
    errno = ENXIO;
    return nullptr;
  }
  void* const memory =
      mmap(over, bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | (over ? MAP_FIXED : 0), file, off_t(at));
  return memory == MAP_FAILED ? nullptr : memory;
}

bool SharedFile::make(const std::string& directory, ReadOwner read_owner,
                      size_t bytes) {
  const std::string first = directory + "/" + std::to_string(getpid());
  const uint64_t here = pid_namespace();
  const std::string second = first + "-" + std::to_string(here);
  // Nobody else has this number in this namespace.
  if (here) unlink(second.c_str());
  for (const std::string& path : {first, second}) {
    if (file_ >= 0 || !make_way(path, read_owner)) continue;
    // Another process may be faster.
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    path_ = path;
  }
  struct stat info;
  if (file_ < 0 || fstat(file_, &info)) return false;
  number_ = info.st_ino;
  lock_as_owner(file_);
  return !ftruncate(file_, off_t(bytes));
}

// By its name: in a program that closes every descriptor it finds, `file_`
// could be another file's. -1, with an errno, where the name is no longer this
// file's.
int SharedFile::open_again() const {
  const int file = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat info;
  if (file < 0 || (!fstat(file, &info) && info.st_ino == number_)) return file;
  close(file);
  errno = ENOENT;
  return -1;
}

bool SharedFile::allocate(size_t at, size_t bytes) const {
  const OpenFile file(open_again());
  return file >= 0 && allocate_pages(file, at, bytes);
}

void* SharedFile::map(size_t at, size_t bytes, void* over) const {
  const OpenFile file(open_again());
  return file >= 0 ? map_pages(file, at, bytes, over) : nullptr;
}

void SharedFile::close_own() {
  struct stat info;
  if (file_ >= 0 && !fstat(file_, &info) && info.st_ino == number_)
    close(file_);
  file_ = -1;
}

void SharedFile::remove() {
  struct stat info;
  if (!path_.empty() && !lstat(path_.c_str(), &info) && info.st_ino == number_)
    unlink(path_.c_str());
  path_.clear();
  close_own();
}

void SharedFile::release_after_fork() {
  close_own();
  *this = {};
}

}  // namespace npu
