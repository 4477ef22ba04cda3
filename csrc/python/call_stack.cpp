#include "csrc/python/call_stack.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "csrc/python/held_gil.h"
#include "csrc/python/python_frames.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

// Most programs have hundreds of stacks. One that makes ever new ones (by deep
// recursion) must not fill the memory.
constexpr uint32_t kMaxStacks = 1 << 17;

struct Stack {
  std::vector<StackFrame> frames;
  std::string line;
};

// A code object that is part of known stacks. It is not kept alive, since it
// may hold much else (torch.compile attaches its results to it).
struct Code {
  PyObject* death;  // weak reference that calls forget_code()
  std::vector<uint64_t> hashes;
};

// An id is a position in `list`. Changes need both the GIL and the mutex, so
// either is enough for reading.
struct Stacks {
  std::mutex mutex;
  std::deque<Stack> list{1};  // 0: not known
  std::unordered_map<uint64_t, uint32_t> by_hash;
  std::unordered_map<PyObject*, Code> codes;
  std::unordered_map<PyObject*, PyObject*> code_of_death;
  std::vector<std::pair<std::string, Origin>> origins;
};
Stacks& stacks() {
  static Stacks* const instance = new Stacks;
  return *instance;
}

// Counts the code objects that were destroyed: another one may get the same
// address, so a destruction invalidates what threads remember by address.
// Relaxed: a thread that runs the new code has taken the GIL after the
// destruction.
std::atomic<uint64_t> generation{0};

PyObject* forget_code(PyObject*, PyObject* death) {
  Stacks& all = stacks();
  const auto at = all.code_of_death.find(death);
  if (at != all.code_of_death.end()) {
    const auto code = all.codes.find(at->second);
    for (const uint64_t hash : code->second.hashes) all.by_hash.erase(hash);
    all.codes.erase(code);
    all.code_of_death.erase(at);
    generation.fetch_add(1, std::memory_order_relaxed);
    Py_DECREF(death);
  }
  Py_RETURN_NONE;
}
PyMethodDef forget_code_def = {"forget_code", forget_code, METH_O, nullptr};

// Lets the destruction of a code object forget the stack. False, where there is
// no memory: the stack must then not be remembered.
bool watch_code(PyObject* object, uint64_t hash) {
  static PyObject* const callback = PyCFunction_New(&forget_code_def, nullptr);
  Code& code = stacks().codes[object];
  if (!code.death) {
    code.death = PyWeakref_NewRef(object, callback);
    if (!code.death) {
      PyErr_Clear();
      stacks().codes.erase(object);
      return false;
    }
    stacks().code_of_death[code.death] = object;
  }
  code.hashes.push_back(hash);
  return true;
}

Origin origin_of(const std::string& file) {
  if (file.starts_with("<frozen")) return Origin::kLibrary;
  for (const auto& [folder, origin] : stacks().origins)
    if (file.starts_with(folder)) return origin;
  return Origin::kUser;
}

StackFrame describe(const PythonFrame& frame) {
  const auto* code = reinterpret_cast<PyCodeObject*>(frame.code);
  auto text = [](PyObject* s) {
    const char* utf8 = PyUnicode_AsUTF8(s);
    if (!utf8) PyErr_Clear();
    return std::string(utf8 ? utf8 : "?");
  };
  const std::string file = text(code->co_filename);
  return {file, text(code->co_qualname),
          PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(frame.code),
                           frame.byte_offset),
          origin_of(file)};
}

std::string line_of(const std::vector<StackFrame>& frames) {
  if (frames.empty()) return "";
  const StackFrame* best = &frames.back();
  for (const Origin wanted : {Origin::kPackage, Origin::kUser}) {
    const auto innermost =
        std::ranges::find(frames, wanted, &StackFrame::origin);
    if (innermost != frames.end()) best = &*innermost;
  }
  return best->file + ":" + std::to_string(best->line) + " in " +
         best->function;
}

uint32_t add_stack(PyThreadState* thread, uint64_t hash) {
  Stacks& all = stacks();
  uint32_t id = 0;
  const auto known = all.by_hash.find(hash);
  if (known != all.by_hash.end()) {
    id = known->second;
  } else if (all.list.size() < kMaxStacks) {
    Stack stack;
    bool watched = true;
    for (const PythonFrame& frame : python_frames(thread)) {
      stack.frames.push_back(describe(frame));
      watched = watched && watch_code(frame.code, hash);
    }
    stack.line = line_of(stack.frames);
    std::lock_guard lock(all.mutex);
    id = uint32_t(all.list.size());
    publish_site(id, stack.line.c_str());
    all.list.push_back(std::move(stack));
    if (watched) all.by_hash.emplace(hash, id);
  }
  return id;
}

// The id of a stack that this thread sees for the first time; 0 where there is
// no memory for it: a launch does not fail because its line is not known.
[[gnu::noinline, gnu::cold]] uint32_t intern(PyThreadState* thread,
                                             uint64_t hash) {
  if (python_is_finalizing()) return 0;
  const HeldGil gil;
  // A pending exception must stay as it is.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  uint32_t id = 0;
  try {
    id = add_stack(thread, hash);
  } catch (const std::bad_alloc&) {
  }
  PyErr_Restore(type, value, trace);
  return id;
}

// This thread's latest stacks. A hash identifies its stack: among 2^17 stacks,
// two hashes of 64 bits are equal in one of a billion programs. The top bits of
// the hash choose a set of four entries, of which the oldest makes room: up to
// four lines that take turns never push each other out.
class Cache {
 public:
  // The stack's id, or null where it is not remembered.
  const uint32_t* find(uint64_t hash) {
    for (const Entry& entry : set_of(hash))
      if (entry.hash == hash) return &entry.id;
    return nullptr;
  }
  void remember(uint64_t hash, uint32_t id) {
    Set& set = set_of(hash);
    std::shift_right(set.begin(), set.end(), 1);
    set.front() = {hash, id};
  }
  void forget_before(uint64_t generation) {
    if (of_generation_ == generation) [[likely]]
      return;
    sets_.fill({});
    of_generation_ = generation;
  }

  uint64_t thread = at::RecordFunction::currentThreadId();

 private:
  struct Entry {
    uint64_t hash = 0;
    uint32_t id = 0;
  };
  using Set = std::array<Entry, 4>;
  static constexpr int kSetBits = 8;

  Set& set_of(uint64_t hash) { return sets_[hash >> (64 - kSetBits)]; }

  std::array<Set, 1 << kSetBits> sets_;
  uint64_t of_generation_ = 0;
};
thread_local Cache cache_of_thread;
constinit thread_local Cache* cache_ = nullptr;

inline Cache& cache() {
  if (!cache_) [[unlikely]]
    cache_ = &cache_of_thread;
  return *cache_;
}

[[gnu::hot]] uint32_t current_site(Cache& mine) {
  PyThreadState* const thread = PyGILState_GetThisThreadState();
  if (!thread) return 0;
  const uint64_t hash = hash_python_stack(thread);
  if (hash == 0) return 0;
  mine.forget_before(generation.load(std::memory_order_relaxed));
  if (const uint32_t* id = mine.find(hash)) [[likely]]
    return *id;
  const uint32_t id = intern(thread, hash);
  mine.remember(hash, id);
  return id;
}

// Where each autograd node was made, by its sequence number and thread. Any
// thread may run its backward. Relaxed throughout: an entry is one word, and a
// missed or overwritten one only costs a line in a message.
class ForwardSites {
 public:
  void note(uint64_t sequence, uint64_t thread, uint32_t site) {
    std::atomic<uint64_t>& entry = entries_[sequence % kEntries];
    const uint64_t tag = tag_of(sequence, thread);
    // The first launch after a node was made is the node's own.
    if (entry.load(std::memory_order_relaxed) >> 32 != tag)
      entry.store(tag << 32 | site, std::memory_order_relaxed);
  }
  uint32_t find(uint64_t sequence, uint64_t thread) const {
    const uint64_t entry =
        entries_[sequence % kEntries].load(std::memory_order_relaxed);
    return entry >> 32 == tag_of(sequence, thread) ? uint32_t(entry) : 0;
  }

 private:
  static constexpr uint64_t kEntries = 1 << 16;
  static uint64_t tag_of(uint64_t sequence, uint64_t thread) {
    return (sequence * 64 + thread + 1) & 0xffffffff;
  }
  std::array<std::atomic<uint64_t>, kEntries> entries_{};
};
ForwardSites forward_sites;

uint32_t forward_site() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return 0;
  return forward_sites.find(node->sequence_nr(), node->thread_id());
}

}  // namespace

uint32_t current_call_stack_id() { return current_site(cache()); }

[[gnu::hot]] CallSite current_call_site() {
  Cache& mine = cache();
  const uint32_t site = current_site(mine);
  if (torch::autograd::get_current_graph_task_id() >= 0) [[unlikely]]
    return {site, forward_site()};
  if (const uint64_t next = at::sequence_number::peek())
    forward_sites.note(next - 1, mine.thread, site);
  return {site, 0};
}

std::vector<StackFrame> call_stack(uint32_t site) {
  if (site >= stacks().list.size()) return {};
  return stacks().list[site].frames;
}

std::string call_line(uint32_t site) {
  std::lock_guard lock(stacks().mutex);
  return site < stacks().list.size() ? stacks().list[site].line : "";
}

void add_origin(const std::string& folder, Origin origin) {
  stacks().origins.insert(stacks().origins.begin(), {folder, origin});
}

}  // namespace npu
