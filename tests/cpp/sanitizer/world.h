// A sanitizer that watches streams and a block of memory.
#pragma once

#include <atomic>
#include <vector>

#include "csrc/sanitizer/sanitizer.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"

namespace npu::check {

inline const int64_t kSize[] = {16}, kStride[] = {1};
inline const npu_view kWriteView{kSize, kStride, 1, 4, 0, NPU_WRITE};
inline const npu_view kReadView{kSize, kStride, 1, 4, 0, NPU_READ};
inline constexpr npu_kernel kWrite{run_nothing, "test::write", &kWriteView, 1};
inline constexpr npu_kernel kRead{run_nothing, "test::read", &kReadView, 1};

inline std::vector<FindingKind> found_;
inline std::atomic<int> count_{0};

inline bool note(const Finding* findings, size_t count) {
  for (size_t i = 0; i < count; ++i) found_.push_back(findings[i].kind);
  return false;
}
inline bool tally(const Finding*, size_t count) {
  count_ += int(count);
  return false;
}

// Streams under a sanitizer, and a block of the first one.
struct World {
  explicit World(bool (*found)(const Finding*, size_t) = &note)
      : sanitizer({found, nullptr, nullptr}) {
    found_.clear();
    count_ = 0;
    list_observer(sanitizer, true);
    for (Stream* s : {&one, &two, &three, &direct}) s->look_for_observers();
    sanitizer.allocated(one, memory, sizeof memory);
  }
  ~World() {
    for (Stream* s : {&one, &two, &three}) s->stop();
    list_observer(sanitizer, false);
  }
  void write(Stream& stream) { submit(stream, kWrite, {word(memory)}); }
  void read(Stream& stream) { submit(stream, kRead, {word(memory)}); }
  void free() { sanitizer.freed(one, memory, sizeof memory, FreedTo::kStream); }

  Sanitizer sanitizer;
  Stream one{0, 90, 0, StreamMode::kQueued}, two{0, 91, 0, StreamMode::kQueued},
      three{0, 96, 0, StreamMode::kQueued};
  Stream direct{0, 97, 0, StreamMode::kInline};
  float memory[16];
};

}  // namespace npu::check
