#include "csrc/interop/foreign.h"

#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "csrc/driver/driver.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

// The work: as a kernel what observers see, and what a graph runs at each
// replay; as a program what its task runs, once. Its state is released by run()
// or dropped(), or when the graph ends; whoever reports or traces the task
// reads the object a little longer.
class Foreign final : public npu_kernel, public Program {
 public:
  explicit Foreign(ForeignWork work) : work_(std::move(work)) {
    for (const ForeignView& v : work_.views)
      views_.push_back({v.sizes.data(), v.strides.data(),
                        uint32_t(v.sizes.size()), v.itemsize,
                        uint32_t(views_.size() + 1), v.access});
    static_cast<npu_kernel&>(*this) = {run_captured, work_.name, views_.data(),
                                       uint32_t(views_.size()),
                                       NPU_KERNEL_ON_HOST};
    if (work_.waits_for_peers) flags |= kWaitsForPeers;
  }
  Foreign(const Foreign&) = delete;

  static int run_captured(const npu_kernel* kernel, const uint64_t* words,
                          npu_failure* failure) {
    const auto* const own = static_cast<const Foreign*>(kernel);
    const int drawn = own->drawn_word();
    return own->run_work(drawn < 0 ? own->work_.number : words[drawn + 1],
                         *failure);
  }
  int run(Stream&, const DeviceQueue&, const uint64_t*,
          npu_failure& failure) override {
    const int code = run_work(work_.number, failure);
    release();
    return code;
  }
  void dropped(Stream&, const uint64_t*) override { release(); }
  void release() {
    if (work_.release) work_.release(work_.state);
  }

  // Behind the addresses, which begin at word 1, where each replay has a number
  // of its own; else -1.
  int drawn_word() const { return work_.source < 0 ? -1 : int(n_views + 1); }
  uint32_t n_words() const { return n_views + (work_.source < 0 ? 1 : 3); }
  void describe(Submission& s) {
    s.task->kernel = this;
    s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(this));
    for (uint32_t i = 0; i < n_views; ++i)
      s.words[i + 1] = reinterpret_cast<uint64_t>(work_.views[i].address);
    if (work_.source < 0) return;
    s.words[n_views + 1] = uint64_t(work_.source);
    s.words[n_views + 2] = work_.number;
  }

 private:
  int run_work(uint64_t number, npu_failure& failure) const {
    const HostAccess access;
    return work_.run(work_.state, number, failure);
  }

  const ForeignWork work_;
  std::vector<npu_view> views_;
};

// Ends work that nobody runs any more, or that no queue has taken.
struct Release {
  void operator()(Foreign* work) const {
    work->release();
    delete work;
  }
};

void end_captured(npu_kernel* kernel) {
  Release()(static_cast<Foreign*>(kernel));
}

// Makes the object of the work. Without memory for it, releases the work.
std::unique_ptr<Foreign, Release> make(ForeignWork work) {
  const auto release = work.release;
  void* const state = work.state;
  try {
    return std::unique_ptr<Foreign, Release>(new Foreign(std::move(work)));
  } catch (const std::bad_alloc&) {
    if (release) release(state);
    throw;
  }
}

DeferredDelete<Foreign>& submitted() {
  static auto* const instance = new DeferredDelete<Foreign>;
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
  auto made = make(std::move(work));
  // First: it may find no memory, and a task that is queued must stay.
  auto& kept = submitted();
  const bool captured = stream.sink();
  Submission s;
  if (!stream.begin(made->n_words(), s, call_site())) return false;
  Foreign* const foreign = made.release();
  foreign->describe(s);
  if (!captured) s.task->marks.kind = TaskKind::kProgram;
  stream.commit(s);
  if (captured) return true;  // the graph owns it now
  kept.after({&stream, s.position + 1}, std::unique_ptr<Foreign>(foreign));
  stream.after_commit(s);
  return true;
}

OwnKernel captured_work(const npu_kernel* kernel) {
  if (kernel->run != &Foreign::run_captured) return {};
  return {const_cast<npu_kernel*>(kernel), &end_captured,
          static_cast<const Foreign*>(kernel)->drawn_word()};
}

}  // namespace npu
