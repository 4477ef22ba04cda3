// The recorded history of device memory: each step, with the Python stack that
// took it.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <deque>
#include <mutex>
#include <unordered_map>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/observe/observer.h"
#include "csrc/python/bindings.h"
#include "csrc/python/def.h"
#include "csrc/taskqueue/stream.h"

namespace py = pybind11;
using namespace py::literals;

// Declared here because its header needs a library that torch does not ship.
namespace torch {
std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& stacks);
}

namespace npu {
namespace {

using Traceback = std::shared_ptr<torch::CapturedTraceback>;

enum class MemoryAction : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,  // bytes: asked for; address: free bytes
};

struct Entry {
  MemoryAction action;
  int device;
  int64_t stream;
  uintptr_t address;
  size_t bytes;
  uint64_t ns = now_ns();  // CLOCK_MONOTONIC
  Traceback stack{};
};

enum Stacks { kNone, kState, kAllocations, kAll };

struct History {
  std::mutex mutex;  // guards all; never held while taking the GIL
  Stacks stacks = kNone;
  bool keep_steps = false;
  uint32_t skipped = 0;  // bit n: steps of MemoryAction n are not kept
  size_t most = 0;
  std::deque<Entry> entries;
  // Stacks of the blocks in use, by address.
  std::unordered_map<uintptr_t, Traceback> live;
};
History& history() {
  static History* const instance = new History;  // tensors are freed at exit
  return *instance;
}

// By MemoryAction: the setting from which on the stack of such a step is kept.
// At the completion of a free, an allocator's lock may be held.
constexpr int kStackFrom[] = {kState,       kAll, kAll + 1,
                              kAllocations, kAll, kAllocations};

void record(Entry entry) {
  History& h = history();
  Stacks stacks;
  {
    std::lock_guard lock(h.mutex);
    stacks = h.stacks;
  }
  if (stacks >= kStackFrom[int(entry.action)] && Py_IsInitialized())
    entry.stack = torch::CapturedTraceback::gather(true, false, false);
  Entry dropped;  // destroyed without the lock: its stack needs the GIL
  Traceback dead;
  std::lock_guard lock(h.mutex);
  if (entry.action == MemoryAction::kAlloc) {
    h.live[entry.address] = entry.stack;
    // It goes with the memory.
    if (stacks < kAllocations) entry.stack.reset();
  }
  if (entry.action == MemoryAction::kFreeRequested) {
    const auto at = h.live.find(entry.address);
    if (at != h.live.end()) {
      dead = std::move(at->second);
      h.live.erase(at);
    }
  }
  if (!h.keep_steps || h.skipped >> int(entry.action) & 1) return;
  h.entries.push_back(std::move(entry));
  if (h.entries.size() > h.most) {
    dropped = std::move(h.entries.front());
    h.entries.pop_front();
  }
}

void record(MemoryAction action, const Stream& stream, const void* address,
            size_t bytes) {
  record({action, stream.device(), stream.id(),
          reinterpret_cast<uintptr_t>(address), bytes});
}

struct Watcher final : Observer {
  unsigned wants() const override { return 0; }
  void allocated(Stream& s, const void* at, size_t bytes) override {
    record(MemoryAction::kAlloc, s, at, bytes);
  }
  void freed(Stream& s, const void* at, size_t bytes, FreedTo) override {
    record(MemoryAction::kFreeRequested, s, at, bytes);
  }
  void free_completed(Stream& s, const void* at, size_t bytes) override {
    record(MemoryAction::kFreeCompleted, s, at, bytes);
  }
  void segment_allocated(Stream& s, const void* at, size_t bytes) override {
    record(MemoryAction::kSegmentAlloc, s, at, bytes);
  }
  void segment_freed(int device, const void* at, size_t bytes) override {
    record({MemoryAction::kSegmentFree, device, 0,
            reinterpret_cast<uintptr_t>(at), bytes});
  }
  void out_of_memory(Stream& s, size_t asked, size_t free) override {
    record(MemoryAction::kOutOfMemory, s, reinterpret_cast<void*>(free), asked);
  }
};

// By MemoryAction.
constexpr const char* kNames[] = {"alloc",          "free_requested",
                                  "free_completed", "segment_alloc",
                                  "segment_free",   "oom"};

std::vector<py::object> frames_of(const std::vector<Traceback>& stacks) {
  std::vector<torch::CapturedTraceback*> known;
  for (const Traceback& stack : stacks)
    if (stack) known.push_back(stack.get());
  const std::vector<py::object> texts = torch::py_symbolize(known);
  std::vector<py::object> frames;
  auto text = texts.begin();
  for (const Traceback& stack : stacks)
    frames.push_back(stack ? *text++ : py::list());
  return frames;
}

// Other names, such as "snapshot", are those of steps that are never kept.
uint32_t mask_of(const std::vector<std::string>& names) {
  uint32_t mask = 0;
  for (const std::string& name : names)
    for (size_t i = 0; i < std::size(kNames); ++i)
      mask |= uint32_t(name == kNames[i]) << i;
  return mask;
}

void switch_history(int stacks, bool keep_steps, size_t most, bool clear,
                    const std::vector<std::string>& skipped) {
  History& h = history();
  std::deque<Entry> old;
  std::unordered_map<uintptr_t, Traceback> dead;
  // Never destroyed: tensors are freed at exit.
  static auto* const watcher = new Watcher;
  install_observer(*watcher, keep_steps || stacks != kNone);
  std::lock_guard lock(h.mutex);
  h.stacks = Stacks(stacks);
  h.keep_steps = keep_steps;
  h.skipped = mask_of(skipped);
  h.most = most;
  if (clear) {
    h.entries.swap(old);
    h.live.swap(dead);
  }
}

// The steps of each device, oldest first, spelled as in torch.cuda's snapshots.
py::list steps(int devices) {
  std::deque<Entry> entries;
  {
    std::lock_guard lock(history().mutex);
    entries = history().entries;
  }
  std::vector<Traceback> stacks;
  for (const Entry& e : entries) stacks.push_back(e.stack);
  const std::vector<py::object> frames = frames_of(stacks);
  std::vector<py::list> traces(devices);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& step = entries[i];
    py::dict d("action"_a = kNames[int(step.action)], "size"_a = step.bytes,
               "stream"_a = step.stream, "time_us"_a = step.ns / 1000,
               "compile_context"_a = "N/A", "user_metadata"_a = "",
               "frames"_a = frames[i]);
    d[step.action == MemoryAction::kOutOfMemory ? "device_free" : "addr"] =
        step.address;
    traces.at(step.device).append(d);
  }
  py::list all;
  for (py::list& trace : traces) all.append(trace);
  return all;
}

// The stacks of the blocks in use: address to frames.
py::dict live() {
  std::unordered_map<uintptr_t, Traceback> blocks;
  {
    std::lock_guard lock(history().mutex);
    blocks = history().live;
  }
  std::vector<Traceback> stacks;
  for (const auto& [_, stack] : blocks) stacks.push_back(stack);
  const std::vector<py::object> frames = frames_of(stacks);
  py::dict d;
  auto at = frames.begin();
  for (const auto& [address, _] : blocks) d[py::int_(address)] = *at++;
  return d;
}

}  // namespace

void bind_memory_history(py::module_& m) {
  def(m, "switch_memory_history", &switch_history);
  def(m, "memory_history", &steps);
  def(m, "live_frames", &live);
}

}  // namespace npu
