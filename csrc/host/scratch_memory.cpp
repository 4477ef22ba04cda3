#include "csrc/host/scratch_memory.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace npu {
namespace {

constexpr size_t kMostKept = size_t(256) << 20;

struct Buffer {
  void* memory;
  size_t bytes;
};

struct Scratch {
  std::mutex mutex;          // guards everything below
  std::vector<Buffer> kept;  // the one kept for longest comes first
  size_t bytes = 0;
};

// Never destroyed: launchers give memory back until the process ends.
Scratch& scratch() {
  static Scratch* const only = [] {
    // A child that is forked while a launcher holds the mutex could never take
    // it.
    pthread_atfork([] { scratch().mutex.lock(); },
                   [] { scratch().mutex.unlock(); },
                   [] { new (&scratch().mutex) std::mutex; });
    return new Scratch;
  }();
  return *only;
}

// The caller holds the mutex.
void trim(Scratch& s, size_t most) {
  auto at = s.kept.begin();
  for (; at != s.kept.end() && s.bytes > most; ++at) {
    s.bytes -= at->bytes;
    free(at->memory);
  }
  s.kept.erase(s.kept.begin(), at);
}

}  // namespace

void* take_scratch(size_t bytes) {
  Scratch& s = scratch();
  std::lock_guard lock(s.mutex);
  // The smallest buffer that is large enough serves, however much larger it is:
  // where sizes never repeat, a buffer for each size would add up to all that
  // may be kept. Of equal buffers the newest serves, which is most likely in a
  // cache.
  auto found = s.kept.rend();
  for (auto at = s.kept.rbegin(); at != s.kept.rend(); ++at)
    if (at->bytes >= bytes &&
        (found == s.kept.rend() || at->bytes < found->bytes))
      found = at;
  if (found == s.kept.rend()) {
    // The buffer that the caller makes now takes the place of the largest kept
    // one: else sizes that grow a little at a time would leave a buffer each.
    const auto largest = std::max_element(
        s.kept.begin(), s.kept.end(),
        [](const Buffer& a, const Buffer& b) { return a.bytes < b.bytes; });
    if (largest != s.kept.end()) {
      s.bytes -= largest->bytes;
      free(largest->memory);
      s.kept.erase(largest);
    }
    return nullptr;
  }
  void* const memory = found->memory;
  s.bytes -= found->bytes;
  s.kept.erase(std::next(found).base());
  return memory;
}

bool keep_scratch(void* memory) {
  const size_t bytes = malloc_usable_size(memory);
  if (bytes < kLeastScratch || bytes > kMostKept) return false;
  Scratch& s = scratch();
  std::lock_guard lock(s.mutex);
  s.kept.push_back({memory, bytes});
  s.bytes += bytes;
  trim(s, kMostKept);
  return true;
}

void free_scratch() {
  Scratch& s = scratch();
  std::lock_guard lock(s.mutex);
  trim(s, 0);
}

}  // namespace npu
