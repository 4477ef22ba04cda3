#include "csrc/torch/scratch_memory.h"

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
  std::mutex mutex;          // guards all below
  std::vector<Buffer> kept;  // the longest kept first
  size_t bytes = 0;
};

// Never destroyed: launchers give memory back until the process ends.
Scratch& scratch() {
  static Scratch* const only = [] {
    // A child forked while a launcher is in here could never empty it.
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
  // The smallest that is large enough, whatever is left over: where sizes never
  // repeat, buffers for each of them would add up to all that may be kept. Of
  // equals the newest, which is the most likely to be in a cache.
  auto found = s.kept.rend();
  for (auto at = s.kept.rbegin(); at != s.kept.rend(); ++at)
    if (at->bytes >= bytes &&
        (found == s.kept.rend() || at->bytes < found->bytes))
      found = at;
  if (found == s.kept.rend()) {
    // The one that is made now serves instead of the largest kept: else sizes
    // that grow a little at a time would leave a buffer each.
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
