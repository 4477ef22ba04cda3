#include "csrc/interop/foreign.h"

#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "csrc/driver/host_access.h"
#include "csrc/driver/kernel_flags.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// The work as observers see it. The addresses of its views begin at word 1 of
// its task.
class ForeignKernel : public npu_kernel {
 public:
  ForeignKernel(npu_run_fn run, ForeignWork work) : work_(std::move(work)) {
    for (const ForeignView& v : work_.views)
      views_.push_back({v.sizes.data(), v.strides.data(),
                        uint32_t(v.sizes.size()), v.itemsize,
                        uint32_t(views_.size() + 1), v.access});
    static_cast<npu_kernel&>(*this) = {run, work_.name, views_.data(),
                                       uint32_t(views_.size()),
                                       NPU_KERNEL_ON_HOST};
    if (work_.waits_for_peers) flags |= kWaitsForPeers;
  }
  ForeignKernel(const ForeignKernel&) = delete;

  int run_work(uint64_t number, npu_failure& failure) const {
    const HostAccess access;
    return work_.run(work_.state, number, failure);
  }
  uint64_t number() const { return work_.number; }
  // Behind the addresses, where each replay has a number of its own; else -1.
  int drawn_word() const { return work_.source < 0 ? -1 : int(n_views + 1); }
  void release() {
    if (work_.release) work_.release(work_.state);
  }

  uint32_t n_words() const { return n_views + (work_.source < 0 ? 1 : 3); }
  void describe(Submission& s, TaskKind kind) {
    s.task->marks.kind = kind;
    s.task->kernel = this;
    for (uint32_t i = 0; i < n_views; ++i)
      s.words[i + 1] = reinterpret_cast<uint64_t>(work_.views[i].address);
    if (work_.source < 0) return;
    s.words[n_views + 1] = uint64_t(work_.source);
    s.words[n_views + 2] = work_.number;
  }

 private:
  const ForeignWork work_;
  std::vector<npu_view> views_;
};

// The program of the task. Its state is released by run() or dropped(); whoever
// reports or traces the task reads the object a little longer.
class ForeignTask final : public Program {
 public:
  explicit ForeignTask(ForeignWork work) : kernel_(nullptr, std::move(work)) {}

  int run(Stream&, const DeviceQueue&, const uint64_t*,
          npu_failure& failure) override {
    const int code = kernel_.run_work(kernel_.number(), failure);
    release();
    return code;
  }
  void dropped(Stream&, const uint64_t*) override { release(); }

  void release() { kernel_.release(); }

  bool submit(Stream& stream, Submission& s) {
    if (!stream.begin(kernel_.n_words(), s, call_site())) return false;
    kernel_.describe(s, TaskKind::kProgram);
    s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(this));
    stream.commit(s);
    return true;
  }

 private:
  ForeignKernel kernel_;
};

// Runs a node of a graph, at each replay.
int run_captured(const npu_kernel* kernel, const uint64_t* words,
                 npu_failure* failure) {
  const auto* const own = static_cast<const ForeignKernel*>(kernel);
  const int drawn = own->drawn_word();
  return own->run_work(drawn < 0 ? own->number() : words[drawn + 1], *failure);
}

// Ends work that nobody runs any more, or that no queue has taken.
struct Release {
  template <typename T>
  void operator()(T* work) const {
    work->release();
    delete work;
  }
};

void end_captured(npu_kernel* kernel) {
  Release()(static_cast<ForeignKernel*>(kernel));
}

// Makes the object of the work. Without memory for it, releases the work.
template <typename T, typename... First>
std::unique_ptr<T, Release> make(ForeignWork work, First... first) {
  const auto release = work.release;
  void* const state = work.state;
  try {
    return std::unique_ptr<T, Release>(new T(first..., std::move(work)));
  } catch (const std::bad_alloc&) {
    if (release) release(state);
    throw;
  }
}

bool capture(Stream& stream, ForeignWork work) {
  auto kernel = make<ForeignKernel>(std::move(work), &run_captured);
  Submission s;
  if (!stream.begin(kernel->n_words(), s, call_site())) return false;
  kernel.release()->describe(s, TaskKind::kKernel);  // the graph owns it now
  stream.commit(s);
  return true;
}

DeferredDelete<ForeignTask>& submitted() {
  static auto* const instance = new DeferredDelete<ForeignTask>;
  return *instance;
}

}  // namespace

const char* intern_name(std::string_view name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string, std::less<>>;
  std::lock_guard lock(*mutex);
  const auto found = names->find(name);
  if (found != names->end()) return found->c_str();
  const char* kept = names->emplace(name).first->c_str();
  publish_name(kept);
  return kept;
}

bool submit_foreign(Stream& stream, ForeignWork work) {
  if (stream.sink()) return capture(stream, std::move(work));
  auto task = make<ForeignTask>(std::move(work));
  // First: it may find no memory, and a task that is queued must stay.
  auto& kept = submitted();
  Submission s;
  if (!task->submit(stream, s)) return false;
  kept.after({&stream, s.position + 1},
             std::unique_ptr<ForeignTask>(task.release()));
  stream.after_commit(s);
  return true;
}

CapturedWork captured_work(const npu_kernel* kernel) {
  if (kernel->run != &run_captured) return {};
  return {&end_captured,
          static_cast<const ForeignKernel*>(kernel)->drawn_word()};
}

}  // namespace npu
