#include "csrc/sanitizer/sanitizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/interop/flag.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

bool uses_flag(const npu_kernel& kernel) {
  return &kernel == &kSetFlag || &kernel == &kTakeFlag ||
         &kernel == &kReachFlag;
}

bool is_unseen(const npu_kernel& kernel) {
  return !kernel.n_views && kernel.flags & NPU_KERNEL_ON_HOST &&
         !uses_flag(kernel);
}

FindingKind kind_of(const Access& old, const Access& access, bool host) {
  if (host)
    return access.writes ? FindingKind::kHostWrite : FindingKind::kHostRead;
  if (old.stale) return FindingKind::kReuse;
  if (old.foreign || access.foreign)
    return FindingKind::kUnorderedForeignLaunch;
  return old.writes && access.writes ? FindingKind::kWriteWrite
                                     : FindingKind::kReadWrite;
}

// Counts the time that the sanitizer takes: one call in kSamplePeriod is
// measured, and stands for the others.
class Timed {
 public:
  explicit Timed(int device)
      : device_(device), start_(is_sampled(calls_++) ? ticks() : 0) {}
  ~Timed() {
    if (start_) [[unlikely]]
      count();
  }
  Timed(const Timed&) = delete;

 private:
  [[gnu::noinline]] void count() const {
    const double ns =
        double(ticks_between(start_, ticks())) * kSamplePeriod * ns_per_tick();
    DeviceBlock* const blocks = segment().devices;
    // Relaxed: statistics order nothing. The memory of all devices counts for
    // device 0.
    blocks[device_].sanitizer_ns.fetch_add(uint64_t(ns),
                                           std::memory_order_relaxed);
    blocks[0].sanitizer_bytes.store(
        uint64_t(shadow_bytes.load(std::memory_order_relaxed)),
        std::memory_order_relaxed);
  }

  static inline thread_local uint32_t calls_ = 0;
  const int device_;
  const uint64_t start_;
};

}  // namespace

Access Sanitizer::access_of(const npu_kernel& kernel, uint32_t i,
                            const uint64_t* words, uint32_t stream,
                            uint64_t number, CallSite site, bool foreign) {
  return {.box = box_of(kernel.views[i], words),
          .op = kernel.name,
          .number = number,
          .stream = stream,
          .site = site,
          .argument = i,
          .writes = (kernel.views[i].access & NPU_WRITE) != 0,
          .foreign = foreign,
          .stale = false};
}

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
  Side s{a.op,      -1,       -1,       a.number - 1, a.site, int(a.argument),
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
  if (region.owner < streams_.size()) {
    f.device = streams_[region.owner]->stream->device();
    f.stream = streams_[region.owner]->stream->id();
  }
  f.alloc_site = region.alloc_site;
  f.free_site = region.free_site;
  f.old_alloc_site = region.old_alloc_site;
  f.old_free_site = region.old_free_site;
  return f;
}

void Sanitizer::check(const Access& access, const Region& region,
                      const VectorClock& clock,
                      std::vector<Finding>& findings) {
  for (const Access& old : region.accesses) {
    if (old.stream == access.stream || clock[old.stream] >= old.number)
      continue;
    if (!old.writes && !access.writes) continue;
    if (overlap(old.box, access.box) == Answer::kNo) continue;
    if (old.number > streams_[old.stream]->open_from) continue;
    Finding f = describe(
        kind_of(old, access, access.stream == kHost && region.pinned), region);
    f.first = side(old);
    f.second = side(access);
    findings.push_back(f);
  }
}

bool Sanitizer::submitted(Stream& stream, uint64_t position, const Task& task) {
  if (task.marks.kind != TaskKind::kKernel &&
      task.marks.kind != TaskKind::kProgram)
    return false;
  if (!task.kernel->n_views) {
    if (is_unseen(*task.kernel)) note_unseen(stream, position + 1);
    return false;
  }
  const KernelCall call{task.kernel, const_cast<Task&>(task).words()};
  const Origin origin = task.marks.kind == TaskKind::kProgram
                            ? Origin::kForeign
                            : Origin::kOperator;
  return examine(stream, position, &call, 1, {task.site, task.forward_site},
                 {origin});
}

bool Sanitizer::examine(Stream& stream, uint64_t position,
                        const KernelCall* calls, size_t count, CallSite site,
                        const From& from) {
  const Timed timed(stream.device());
  std::vector<Finding> findings;
  bool pinned = false;
  std::unique_lock lock(mutex_);
  const uint32_t index = index_of(stream);
  StreamState& state = *streams_[index];
  if (state.host_version != host_version_) {
    state.history.join(position, host_, index);
    state.host_version = host_version_;
  }
  const auto for_each_view = [&](auto visit) {
    for (size_t c = 0; c < count; ++c)
      for (uint32_t i = 0; i < calls[c].kernel->n_views; ++i)
        if (Region* const region = shadow_.find(
                uintptr_t(calls[c].words[calls[c].kernel->views[i].word])))
          visit(calls[c], i, *region);
  };
  const auto access_of_view = [&](const KernelCall& call, uint32_t i) {
    return access_of(*call.kernel, i, call.words, index, position + 1, site,
                     from.origin == Origin::kForeign);
  };
  const auto usable = [&](const Region& region) {
    return region.live || (region.captured && from.origin == Origin::kReplay);
  };
  const VectorClock& clock = state.history.now();
  for_each_view([&](const KernelCall& call, uint32_t i, Region& region) {
    if (region.live && region.one_stream && !region.overwritten &&
        !region.escaped && (region.stream == index || region.accesses.empty()))
        [[likely]]
      return;
    const Access access = access_of_view(call, i);
    if (access.box.empty()) return;
    if (region.overwritten) [[unlikely]]
      check_overwritten(access, region, from, findings);
    if (region.escaped) [[unlikely]]
      compare_sources(access, access.writes, findings);
    if (usable(region)) {
      if (!state.open()) check(access, region, clock, findings);
      return;
    }
    Finding f = describe(FindingKind::kUseAfterFree, region);
    f.second = side(access);
    f.first = f.second;
    f.first.op = "free";
    f.first.site = {region.free_site, 0};
    f.first.device = f.device;
    f.first.stream = f.stream;
    findings.push_back(f);
  });
  counts_.tasks++;
  counts_.findings += findings.size();
  if (!findings.empty()) [[unlikely]] {
    // Other threads may change the regions during the hook, or turn the
    // sanitizer off.
    const uint64_t cleared = cleared_;
    lock.unlock();
    if (hooks_.found && hooks_.found(findings.data(), findings.size()))
      return true;
    lock.lock();
    if (cleared != cleared_) return false;
  }
  for_each_view([&](const KernelCall& call, uint32_t i, Region& region) {
    if (!usable(region)) return;
    const Access access = access_of_view(call, i);
    if (access.box.empty()) return;
    region.add(access, state.history.now(), host_);
    if (access.writes && from.origin == Origin::kReplay)
      note_overwritten(access, from);
    counts_.accesses++;
    if (region.pinned) [[unlikely]] {
      pinned = true;
      pinned_.push_back(region.lo);
      if (region.escaped && !access.writes) note_source(region, access);
    }
  });
  if (!pinned) return false;
  lock.unlock();
  if (hooks_.touched_pinned) hooks_.touched_pinned();
  return false;
}

// A replay is one task, except that a flag within it orders what comes after
// the flag.
void Sanitizer::replays(Stream& stream, const KernelCall* calls, size_t count,
                        Captured captured) {
  for (const KernelCall& call : std::span(calls, count))
    if (is_unseen(*call.kernel)) note_unseen(stream, stream.tail() + 1);
  for (size_t i = 0; i < count;) {
    if (uses_flag(*calls[i].kernel)) {
      flag_replayed(stream, calls[i++]);
      continue;
    }
    const size_t first = i;
    while (i < count && !uses_flag(*calls[i].kernel)) ++i;
    if (examine(stream, stream.tail(), calls + first, i - first, call_site(),
                {Origin::kReplay, captured}))
      raise_found();
  }
}

void Sanitizer::flag_replayed(Stream& stream, const KernelCall& call) {
  const uint64_t flag = call.words[0];
  if (call.kernel != &kSetFlag)
    flag_awaited(&stream, flag, call.kernel == &kTakeFlag);
  else if (call.words[1])
    flag_raised(stream, stream.tail() + 1, flag);
  else
    flag_lowered(flag);
}

void Sanitizer::note_overwritten(const Access& write, const From& from) {
  shadow_.each_in(write.box.lo, write.box.hi, [&](Region& region) {
    if (region.live && from.before(region))
      region.overwritten = std::make_shared<const Access>(write);
  });
}

void Sanitizer::check_overwritten(const Access& access, Region& region,
                                  const From& from,
                                  std::vector<Finding>& findings) const {
  if (from.before(region)) return;  // it reads what it has written there itself
  const Answer meets = overlap(region.overwritten->box, access.box);
  if (access.writes) {
    if (meets == Answer::kYes) region.overwritten.reset();
  } else if (from.after(region) && meets != Answer::kNo) {
    Finding f = describe(FindingKind::kOverwrittenResult, region);
    f.first = side(*region.overwritten);
    f.second = side(access);
    findings.push_back(f);
  }
}

void Sanitizer::stream_waits(Stream& stream, Stream& other, uint64_t number) {
  std::lock_guard lock(mutex_);
  const uint32_t self = index_of(stream), from = index_of(other);
  VectorClock clock = streams_[from]->history.before(number);
  clock.raise(from, number);
  streams_[self]->history.join(stream.tail(), clock, self);
}

void Sanitizer::flag_raised(Stream& stream, uint64_t number, uint64_t flag) {
  std::lock_guard lock(mutex_);
  const uint32_t from = index_of(stream);
  VectorClock clock = streams_[from]->history.now();
  clock.raise(from, number);
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    StreamState& state = *streams_[i];
    if (state.open_flag != flag) continue;
    state.history.join(state.stream->tail(), clock, i);
    state.open_flag = 0;
    state.open_from = ~uint64_t{0};
  }
  flags_[flag].join(clock);
}

void Sanitizer::flag_lowered(uint64_t flag) {
  std::lock_guard lock(mutex_);
  flags_.erase(flag);
}

void Sanitizer::flag_awaited(Stream* stream, uint64_t flag, bool takes) {
  std::unique_lock lock(mutex_);
  const auto raised = flags_.find(flag);
  if (!stream) {
    if (raised != flags_.end() && host_.join(raised->second)) ++host_version_;
    compare_known(std::move(lock));
    return;
  }
  const uint32_t self = index_of(*stream);
  StreamState& state = *streams_[self];
  if (raised == flags_.end()) {
    state.open_flag = flag;
    state.open_from = std::min(state.open_from, stream->tail());
    return;
  }
  state.history.join(stream->tail(), raised->second, self);
  if (takes) flags_.erase(raised);
}

void Sanitizer::allocated(Stream& stream, const void* memory, size_t bytes) {
  const Timed timed(stream.device());
  const uint32_t site = call_stack_id();
  std::lock_guard lock(mutex_);
  Region& region = shadow_.give_out(uintptr_t(memory), bytes);
  region.owner = index_of(stream);
  region.captured = stream.sink() ? now_ns() : 0;
  region.alloc_site = site;
  region.free_site = 0;
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

void Sanitizer::freed(Stream& stream, const void* memory, size_t, FreedTo) {
  const Timed timed(stream.device());
  const uint32_t site = call_stack_id();
  std::lock_guard lock(mutex_);
  Region* region = shadow_.find(uintptr_t(memory));
  if (!region || !region->live) return;
  region->live = false;
  region->free_site = site;
  // The allocator waits for what the recorded streams have been given so far.
  for (const uint32_t index : region->recorded)
    std::erase_if(region->accesses,
                  [&](const Access& a) { return a.stream == index; });
}

void Sanitizer::segment_freed(int, const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  shadow_.forget(uintptr_t(memory), bytes);
}

void Sanitizer::clear() {
  std::lock_guard lock(mutex_);
  ++cleared_;
  owes_error_ = false;
  streams_.clear();
  indices_.clear();
  last_stream_ = nullptr;
  host_ = {};
  host_version_ = 0;
  pinned_.clear();
  sources_.clear();
  unseen_ = {};
  flags_.clear();
  shadow_.clear();
  counts_ = {};
  // Relaxed: a statistic.
  segment().devices[0].sanitizer_bytes.store(0, std::memory_order_relaxed);
}

Sanitizer::Counts Sanitizer::counts() {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace npu
