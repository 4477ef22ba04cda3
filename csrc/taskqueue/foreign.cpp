#include "csrc/taskqueue/foreign.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/graveyard.h"
#include "csrc/taskqueue/program.h"

namespace npu {
namespace {

// The task's own part. Its state goes with run() or dropped(); the object is
// read a little longer, by whoever reports or traces the task.
class ForeignTask final : public Program {
 public:
  explicit ForeignTask(ForeignWork work) : work_(std::move(work)) {
    for (const ForeignView& v : work_.views)
      views_.push_back({v.sizes.data(), v.strides.data(),
                        uint16_t(v.sizes.size()), v.itemsize,
                        uint16_t(views_.size() + 1), v.access});
    kernel_ = {nullptr, work_.name, views_.data(), uint32_t(views_.size())};
  }

  int run(Stream&, npu_queue, const uint64_t*, npu_failure& failure) override {
    const int code = work_.run(work_.state, failure);
    release();
    return code;
  }
  void dropped(Stream&, const uint64_t*) override { release(); }

  void release() {
    if (work_.release) work_.release(work_.state);
  }

  bool submit(Stream& stream, uint64_t& end) {
    Submission s;
    if (!stream.begin(uint32_t(views_.size() + 1), s, call_site()))
      return false;
    end = s.position + 1;
    s.task->kind = TaskKind::kProgram;
    s.task->kernel = &kernel_;
    s.words[0] = reinterpret_cast<uint64_t>(static_cast<Program*>(this));
    for (size_t i = 0; i < work_.views.size(); ++i)
      s.words[i + 1] = reinterpret_cast<uint64_t>(work_.views[i].address);
    stream.commit(s);
    return true;
  }

 private:
  const ForeignWork work_;
  std::vector<npu_view> views_;
  npu_kernel kernel_;
};

Graveyard<ForeignTask>& graveyard() {
  static auto* const instance = new Graveyard<ForeignTask>;
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
  const char* const name = work.name;
  auto task = std::make_unique<ForeignTask>(std::move(work));
  if (stream.sink()) {
    task->release();
    throw CaptureError(
        "npu: " + std::string(name) +
        " was submitted to a stream that captures a graph; a replay could not "
        "run it again: submit it before the capture or after it");
  }
  uint64_t end = 0;  // 0: nothing has been queued
  try {
    if (!task->submit(stream, end)) {
      task->release();
      return false;
    }
  } catch (...) {
    if (end == 0) {
      task->release();
    } else {
      graveyard().bury(std::move(task), {{&stream, end}});
    }
    throw;
  }
  graveyard().bury(std::move(task), {{&stream, end}});
  return true;
}

}  // namespace npu
