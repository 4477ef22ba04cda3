// The bytes that queued tasks read of memory which the host may write unseen,
// to be compared later with what they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "csrc/sanitizer/shadow.h"

namespace npu {

class Sources {
 public:
  bool empty() const { return reads_.empty(); }
  void clear() { reads_.clear(); }

  // Notes a read without gaps. It stands for the stream's earlier reads of the
  // same bytes, which are over before it is.
  void note(const Access& read) {
    std::erase_if(reads_, [&](const Read& r) {
      return r.access.stream == read.stream && covers(read.box, r.access.box);
    });
    reads_.push_back({read, hash_of(read.box)});
  }

  // Calls changed(read) for each read that meets(read) is true of and whose
  // bytes have changed, and forgets it. Forgets the others that it is true of
  // where their bytes are `over`.
  template <typename Meets, typename Changed>
  void compare(bool over, Meets meets, Changed changed) {
    std::erase_if(reads_, [&](const Read& r) {
      if (!meets(r.access)) return false;
      if (hash_of(r.access.box) == r.hash) return over;
      changed(r.access);
      return true;
    });
  }

  void forget(uintptr_t lo, size_t bytes) {
    std::erase_if(reads_, [&](const Read& r) {
      return r.access.box.lo < lo + bytes && r.access.box.hi > lo;
    });
  }

 private:
  struct Read {
    Access access;
    size_t hash;  // of the bytes when it was noted
  };

  static size_t hash_of(const Box& box) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(box.lo), box.hi - box.lo});
  }

  std::vector<Read> reads_;
};

}  // namespace npu
