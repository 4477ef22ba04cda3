#include "csrc/sanitizer/sanitizer.h"

#include <algorithm>

#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr uint32_t kHost = ~uint32_t{0};

Access access_of(const npu_kernel& kernel, uint32_t i, const uint64_t* words,
                 uint32_t stream, uint64_t number, uint32_t stack) {
  Access access;
  access.box = box_of(kernel.views[i], words);
  access.op = kernel.name;
  access.number = number;
  access.stream = stream;
  access.stack = stack;
  access.argument = uint16_t(i);
  access.writes = kernel.views[i].access & NPU_WRITE;
  access.stale = false;
  return access;
}

FindingKind kind_of(const Access& old, const Access& access, bool pinned) {
  if (access.stream == kHost && pinned)
    return access.writes ? FindingKind::kHostWrite : FindingKind::kHostRead;
  if (old.stale) return FindingKind::kReuse;
  return old.writes && access.writes ? FindingKind::kWriteWrite
                                     : FindingKind::kReadWrite;
}

}  // namespace

uint32_t Sanitizer::index_of(Stream& stream) {
  if (&stream == last_stream_) [[likely]]
    return last_index_;
  const auto [at, added] =
      indices_.try_emplace(&stream, uint32_t(streams_.size()));
  if (added) {
    streams_.push_back(std::make_unique<StreamState>());
    streams_.back()->stream = &stream;
  }
  last_stream_ = &stream;
  return last_index_ = at->second;
}

void Sanitizer::host_joins(uint32_t stream, uint64_t number) {
  bool grew = host_.join(streams_[stream]->history.before(number));
  if (host_[stream] < number) {
    host_.raise(stream, number);
    grew = true;
  }
  if (grew) ++host_version_;
}

Side Sanitizer::side(const Access& a) const {
  Side s{a.op,      -1,       -1,       a.number - 1, a.stack, int(a.argument),
         !a.writes, a.writes, a.box.lo, a.box.hi};
  if (a.stream != kHost) {
    s.device = streams_[a.stream]->stream->device();
    s.stream = streams_[a.stream]->stream->id();
  }
  return s;
}

Finding Sanitizer::describe(FindingKind kind, const Region& region) const {
  Finding f{};
  f.kind = kind;
  f.block = region.lo;
  f.bytes = region.hi - region.lo;
  f.pinned = region.pinned;
  f.device = f.stream = -1;
  if (!region.pinned && region.owner < streams_.size()) {
    f.device = streams_[region.owner]->stream->device();
    f.stream = streams_[region.owner]->stream->id();
  }
  f.alloc_stack = region.alloc_stack;
  f.free_stack = region.free_stack;
  f.old_alloc_stack = region.old_alloc_stack;
  f.old_free_stack = region.old_free_stack;
  return f;
}

void Sanitizer::check(const Access& access, const Region& region,
                      const VectorClock& clock,
                      std::vector<Finding>& findings) {
  for (const Access& old : region.accesses) {
    if (old.stream == access.stream || clock[old.stream] >= old.number)
      continue;
    if (!old.writes && !access.writes) continue;
    if (!overlap(old.box, access.box)) continue;
    Finding f = describe(kind_of(old, access, region.pinned), region);
    f.first = side(old);
    f.second = side(access);
    findings.push_back(f);
  }
}

bool Sanitizer::submitted(Stream& stream, uint64_t position, const Task& task) {
  if (task.kind != TaskKind::kKernel && task.kind != TaskKind::kProgram)
    return true;
  if (!task.kernel->n_views) return true;
  const npu_kernel& kernel = *task.kernel;
  const uint64_t* words = const_cast<Task&>(task).words();
  const uint32_t stack = capture();
  std::vector<Finding> findings;
  bool pinned = false;
  constexpr uint32_t kFew = 8;
  Region* few[kFew];
  std::vector<Region*> many;
  std::unique_lock lock(mutex_);
  const uint32_t index = index_of(stream);
  StreamState& state = *streams_[index];
  if (state.host_version != host_version_) {
    state.history.join(position, host_, index);
    state.host_version = host_version_;
  }
  const VectorClock& clock = state.history.now();
  Region** regions = few;
  if (kernel.n_views > kFew) {
    many.resize(kernel.n_views);
    regions = many.data();
  }
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    Region* region = shadow_.find(uintptr_t(words[kernel.views[i].word]));
    regions[i] = region;
    if (!region) continue;
    if (region->live && region->one_stream &&
        (region->stream == index || region->accesses.empty())) [[likely]]
      continue;
    const Access access =
        access_of(kernel, i, words, index, position + 1, stack);
    if (access.box.empty()) continue;
    if (!region->live) {
      Finding f = describe(FindingKind::kUseAfterFree, *region);
      f.second = side(access);
      f.first = f.second;
      f.first.op = "free";
      f.first.stack = region->free_stack;
      f.first.device = f.device;
      f.first.stream = f.stream;
      findings.push_back(f);
    } else {
      check(access, *region, clock, findings);
    }
  }
  counts_.tasks++;
  counts_.findings += findings.size();
  if (!findings.empty()) [[unlikely]] {
    // Regions stay where they are while somebody asks what to do: other
    // threads may add to them, and memory that a task in hand names is live.
    lock.unlock();
    if (hooks_.found && hooks_.found(findings.data(), findings.size()))
      return false;
    lock.lock();
    for (uint32_t i = 0; i < kernel.n_views; ++i)
      regions[i] = shadow_.find(uintptr_t(words[kernel.views[i].word]));
  }
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    if (!regions[i] || !regions[i]->live) continue;
    const Access access =
        access_of(kernel, i, words, index, position + 1, stack);
    if (access.box.empty()) continue;
    regions[i]->add(access, state.history.now(), host_);
    counts_.accesses++;
    if (regions[i]->pinned) [[unlikely]] {
      pinned = true;
      pinned_.push_back(regions[i]->lo);
    }
  }
  if (!pinned) return true;
  lock.unlock();
  if (hooks_.touched_pinned) hooks_.touched_pinned();
  return true;
}

void Sanitizer::published(Stream&, bool refused) {
  if (refused && hooks_.raise) hooks_.raise();
}

void Sanitizer::stream_waits(Stream& stream, Stream& other, uint64_t number) {
  std::lock_guard lock(mutex_);
  const uint32_t self = index_of(stream), from = index_of(other);
  VectorClock clock = streams_[from]->history.before(number);
  clock.raise(from, number);
  streams_[self]->history.join(stream.tail(), clock, self);
  // An inline stream waits on the calling thread.
  if (stream.mode() == StreamMode::kInline) host_joins(from, number);
}

void Sanitizer::host_waited(Stream& stream, uint64_t number) {
  std::lock_guard lock(mutex_);
  host_joins(index_of(stream), number);
}

void Sanitizer::check_host(const npu_kernel& op, const uint64_t* words,
                           bool only_pinned) {
  std::vector<Finding> findings;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < op.n_views; ++i) {
      Region* region = shadow_.find(uintptr_t(words[op.views[i].word]));
      if (!region || !region->live || (only_pinned && !region->pinned))
        continue;
      const Access access = access_of(op, i, words, kHost, 1, 0);
      if (!access.box.empty()) check(access, *region, host_, findings);
    }
    counts_.findings += findings.size();
  }
  if (findings.empty()) [[likely]]
    return;
  const uint32_t stack = capture();
  for (Finding& f : findings) f.second.stack = stack;
  if (hooks_.found && hooks_.found(findings.data(), findings.size()) &&
      hooks_.raise)
    hooks_.raise();
}

void Sanitizer::host_uses(Stream&, const npu_kernel& op,
                          const uint64_t* words) {
  check_host(op, words, false);
}

void Sanitizer::host_touches(const npu_kernel& op, const uint64_t* words) {
  check_host(op, words, true);
}

bool Sanitizer::pinned_pending() {
  std::lock_guard lock(mutex_);
  std::erase_if(pinned_, [&](uintptr_t address) {
    const Region* region = shadow_.find(address);
    return !region || !region->pinned ||
           std::all_of(
               region->accesses.begin(), region->accesses.end(),
               [&](const Access& a) { return host_[a.stream] >= a.number; });
  });
  return !pinned_.empty();
}

void Sanitizer::allocated(Stream* stream, const void* memory, size_t bytes) {
  const uint32_t stack = capture();
  std::lock_guard lock(mutex_);
  Region& region = shadow_.give_out(uintptr_t(memory), bytes);
  region.owner = index_of(*stream);
  region.alloc_stack = stack;
  region.free_stack = 0;
}

void Sanitizer::adopt(Stream& owner, const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  shadow_.give_out(uintptr_t(memory), bytes).owner = index_of(owner);
}

void Sanitizer::stream_recorded(Stream& stream, const void* memory) {
  std::lock_guard lock(mutex_);
  Region* region = shadow_.find(uintptr_t(memory));
  if (!region) return;
  const uint32_t index = index_of(stream);
  auto& recorded = region->recorded;
  if (std::find(recorded.begin(), recorded.end(), index) == recorded.end())
    recorded.push_back(index);
}

void Sanitizer::freed(Stream*, const void* memory, size_t) {
  const uint32_t stack = capture();
  std::lock_guard lock(mutex_);
  Region* region = shadow_.find(uintptr_t(memory));
  if (!region || !region->live) return;
  region->live = false;
  region->free_stack = stack;
  // The allocator waits for what these streams have been given so far.
  for (const uint32_t index : region->recorded)
    std::erase_if(region->accesses,
                  [&](const Access& a) { return a.stream == index; });
}

void Sanitizer::segment_freed(const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  shadow_.forget(uintptr_t(memory), bytes);
}

void Sanitizer::host_allocated(const void* memory, size_t bytes) {
  const uint32_t stack = capture();
  std::lock_guard lock(mutex_);
  shadow_.forget(uintptr_t(memory), bytes);
  Region& region = shadow_.give_out(uintptr_t(memory), bytes);
  region.pinned = true;
  region.owner = kHost;
  region.alloc_stack = stack;
}

void Sanitizer::host_freed(const void* memory) {
  std::lock_guard lock(mutex_);
  if (Region* region = shadow_.find(uintptr_t(memory)))
    shadow_.forget(region->lo, region->hi - region->lo);
}

Sanitizer::Counts Sanitizer::counts() {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace npu
