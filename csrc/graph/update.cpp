#include "csrc/graph/update.h"

#include <map>
#include <mutex>
#include <utility>

#include "csrc/driver/driver.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/program.h"

namespace npu {
namespace {

std::string difference_between(const Call& before, const Call& after) {
  const npu_kernel &old = *before.kernel, &now = *after.kernel;
  if (std::string_view(old.name) != now.name)
    return std::string("is ") + now.name + ", not " + old.name;
  bool same = old.n_views == now.n_views;
  for (uint32_t i = 0; same && i < old.n_views; ++i) {
    const npu_view &a = old.views[i], &b = now.views[i];
    same = a.itemsize == b.itemsize && a.access == b.access &&
           sizes_of(a, before.words.data()) == sizes_of(b, after.words.data());
  }
  return same ? "" : std::string(old.name) + " has tensors of other shapes";
}

// Lets the new call write its results where the graph's later tasks read them.
void keep_results(const Call& old, Call& now) {
  for (uint32_t i = 0; i < old.kernel->n_views; ++i)
    if (old.kernel->views[i].access == NPU_WRITE)
      now.words[now.kernel->views[i].word] =
          old.words[old.kernel->views[i].word];
}

// Collects the tasks that one stream is given. Whether the graph is still there
// it asks the group, which it owns.
class Collector final : public TaskSink {
 public:
  void begin(std::shared_ptr<Group> group) {
    auto made = std::make_unique<Update>();
    if (group->body->inputs)
      made->inputs = std::make_unique<Inputs>(group->body->pool);
    made->group = std::move(group);
    update = std::move(made);
    problem.clear();
    difference.clear();
  }

  std::unique_ptr<Update> update;  // that is under way
  // Why it cannot be done, whatever the group is; "" where it can.
  std::string problem;
  // The first operator that is not the group's; "" where there is none.
  std::string difference;

  void open(Stream&, uint32_t n_words, Submission& s) override {
    task_.marks = {};
    words_.assign(n_words, 0);
    s.task = &task_;
    s.words = words_.data();
    s.position = update->calls.size();
  }
  void close(Stream&, Submission&) noexcept override {
    if (task_.marks.kind != TaskKind::kKernel) {
      // Releases the task's share of the cell, since there will be no task.
      if (task_.marks.kind == TaskKind::kTimestamp)
        reinterpret_cast<TimeCell*>(words_[0])->release();
      problem = "an event with timing was recorded";
      return;
    }
    try {
      keep(make_call(task_.kernel, std::move(words_)));
    } catch (const std::exception&) {
      problem = "no host memory";  // so short a text takes no memory
    }
  }
  uint64_t mark(Stream& stream) override { return stream.tail(); }
  void wait(Stream&, Stream&, uint64_t) override {
    throw CaptureError(
        "npu: a wait between graph_task_update_begin() and "
        "graph_task_update_end(); put it before or after them");
  }
  void host_waits(const Stream&, WaitReason) override {}

 private:
  // Its tensors are watched from now on: the caller may free them before the
  // end of the update.
  void keep(Call call) {
    const Group& group = *update->group;
    const size_t at = update->calls.size();
    if (group.body && at < group.nodes.size()) {
      const uint32_t node = group.nodes[at];
      std::string found;
      {
        std::lock_guard lock(group.body->calls_mutex);
        const Call& old = group.body->nodes[node].call;
        found = difference_between(old, call);
        if (found.empty()) keep_results(old, call);
      }
      if (found.empty()) {
        if (update->inputs)
          update->inputs->add(call, node, Inputs::Of::kArguments);
      } else if (difference.empty()) {
        difference = "operator " + std::to_string(at) + " " + found;
      }
    }
    update->calls.push_back(std::move(call));
  }

  Task task_{};
  std::vector<uint64_t> words_;
};

// There is one per stream; like every sink it is never destroyed.
Collector& collector(Stream& stream) {
  static std::mutex mutex;
  static auto* const all = new std::map<Stream*, std::unique_ptr<Collector>>;
  std::lock_guard lock(mutex);
  auto& found = (*all)[&stream];
  if (!found) found = std::make_unique<Collector>();
  return *found;
}

// Names the task that puts an update into its group.
const npu_kernel kPut{nullptr, "graph update", nullptr, 0, NPU_KERNEL_ON_HOST};

}  // namespace

int Update::run(Stream&, const DeviceQueue&, const uint64_t*, npu_failure&) {
  const std::shared_ptr<Group> into = std::move(group);
  // Release: pairs with the acquire of the replay that takes it.
  delete into->next.exchange(this, std::memory_order_acq_rel);
  return NPU_OK;
}

void begin_update(Stream& stream, Graph& graph, std::shared_ptr<Group> group) {
  const std::string call = "npu: graph_task_update_begin() on " + stream.name();
  const Body* const body = graph.body();
  if (!body) throw CaptureError(call + ": the graph has no finished capture");
  if (group->body != body)
    throw CaptureError(call + ": the handle is not of the graph's capture");
  if (stream.device() != graph.device())
    throw CaptureError(call + ": the graph was captured on npu:" +
                       std::to_string(graph.device()) +
                       "; update it on a stream of that device");
  if (stream.sink())
    throw CaptureError(call +
                       ": the stream captures, or has an update under "
                       "way; end that first");
  const uint32_t lane = body->nodes[group->nodes[0]].lane;
  if (body->lanes[lane].stream == &stream)
    throw CaptureError(call +
                       ": the group was captured on this stream; update "
                       "it on another one");
  collector(stream).begin(std::move(group));
  stream.set_sink(&collector(stream));
}

void end_update(Stream& stream) {
  Collector& c = collector(stream);
  const std::string call = "npu: graph_task_update_end() on " + stream.name();
  if (!c.update)
    throw CaptureError(call + " without graph_task_update_begin()");
  stream.set_sink(nullptr);
  std::unique_ptr<Update> update = std::move(c.update);
  const Group& group = *update->group;
  if (!group.body) throw CaptureError(call + ": the graph is gone");
  if (!c.problem.empty()) throw CaptureError(call + ": " + c.problem);
  if (update->calls.size() != group.nodes.size())
    throw CaptureError(call + ": " + std::to_string(update->calls.size()) +
                       " operators were called, the group has " +
                       std::to_string(group.nodes.size()) +
                       "; nothing was changed");
  if (!c.difference.empty())
    throw CaptureError(call + ": " + c.difference + "; nothing was changed");
  static const PublishedNames names{kPut.name};
  Submission s;
  if (!stream.begin(1, s, call_site()))
    throw CaptureError(call + ": the stream has failed");
  s.task->marks.kind = TaskKind::kProgram;
  s.task->kernel = &kPut;
  s.words[0] =
      reinterpret_cast<uint64_t>(static_cast<Program*>(update.release()));
  stream.commit(s);
  stream.after_commit(s);
}

}  // namespace npu
