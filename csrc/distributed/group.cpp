#include "csrc/distributed/group.h"

#include <ATen/core/grad_mode.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/distributed/checks.h"
#include "csrc/distributed/exposure.h"
#include "csrc/distributed/noted_call.h"
#include "csrc/distributed/profiled_call.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/host/kernel_threads.h"
#include "csrc/host/scratch_memory.h"
#include "csrc/interop/foreign.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

// A call between its launch and its end. It refers to the device's memory,
// which the allocator keeps from reuse, and owns none of it.
struct Running {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<const Member> member;
  Collective call;
  Tensors reads, writes;
  std::function<void(Transport&, const Collective&, const Tensors&,
                     const Tensors&)>
      run;
  LoggedCollective entry;
  Stream* stream;
  // Of a captured call: what each replay notes, and the stream if it is not the
  // caller's.
  std::unique_ptr<NotedCall> replayed{};
  CommStream lane{};
  int threads = launch_threads();
  bool ran = false;
};

void fail(Running& r, npu_failure& failure, const char* why) {
  // First: whoever hears of the failure may save this rank's calls at once.
  r.entry.failed(now_ns());
  r.entry = {};
  const std::string text = r.member->failed(*r.transport, r.call, why);
  snprintf(failure.text, sizeof failure.text, "%s, %s #%llu: %s",
           r.member->where().c_str(), r.call.agreed.name,
           (unsigned long long)r.call.agreed.seq, text.c_str());
}

int run_call(void* state, uint64_t number, npu_failure& failure) {
  Running& r = *static_cast<Running*>(state);
  r.call.agreed.seq = number;
  if (r.replayed) r.entry = r.replayed->log(number, now_ns());
  r.call.all_here_ns = r.entry.all_here();
  use_threads_for(KernelSize::kLarge, r.threads);
  const at::NoGradGuard no_grad;
  const RunsKernel scratch;  // what the call allocates is kept for the next one
  const uint64_t start = now_ns();
  r.entry.started(start);
  // A replay runs the lane of its capture's first stream on the current one.
  const Stream* const here = stream_of_this_thread();
  const Exposure exposure(here ? *here : *r.stream, start);
  r.ran = true;
  try {
    r.run(*r.transport, r.call, r.reads, r.writes);
    const uint64_t end = now_ns();
    const auto [exposed, host] = exposure.until(end);
    r.entry.ended(end, exposed, host);
    r.entry = {};
    return NPU_OK;
  } catch (const c10::Error& e) {
    fail(r, failure, e.what_without_backtrace());
  } catch (const std::exception& e) {
    fail(r, failure, e.what());
  }
  return failure.code = NPU_ERROR;
}

// Also called for a call that never ran, because its stream had failed.
void release_call(void* state) {
  Running* const r = static_cast<Running*>(state);
  r->entry.failed(now_ns());
  // Where an observer has refused the call, its caller is told, and the stream
  // goes on.
  if (!r->ran && !r->replayed && r->stream->failed())
    r->member->dropped(r->call);
  delete r;
}

// Relaxed: each thread's calls are numbered in their order, and calls of
// several threads have no order but the one that the user makes.
uint64_t next_numbers(std::atomic<uint64_t>& next, uint64_t count) {
  return next.fetch_add(count, std::memory_order_relaxed);
}

uint64_t next_group() {
  static std::atomic<uint64_t> next{0};
  // Relaxed: a count.
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Gives replays the numbers of their collectives.
class Numbers final : public NumberSource {
 public:
  explicit Numbers(std::shared_ptr<std::atomic<uint64_t>> next)
      : next_(std::move(next)) {}
  Draws reserve(uint64_t count) noexcept override {
    return {0, next_numbers(*next_, count)};
  }

 private:
  const std::shared_ptr<std::atomic<uint64_t>> next_;
};

}  // namespace

HcclGroup::HcclGroup(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size,
                     std::string name, Milliseconds timeout, int logged)
    : Backend(rank, size),
      gloo_(std::move(gloo)),
      transport_(std::make_shared<Transport>(gloo_, rank, size)),
      number_(next_group()),
      name_(std::move(name)),
      logged_(logged),
      timeout_(timeout) {
  init();
}

c10::intrusive_ptr<c10d::Backend::Options> HcclGroup::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(timeout_);
  options->group_name = name_;
  return options;
}

void HcclGroup::setTimeout(Milliseconds timeout) { timeout_ = timeout; }

uint64_t HcclGroup::getSequenceNumberForGroup() { return *seq_; }

c10d::ErrorType HcclGroup::getError() {
  std::lock_guard lock(mutex_);
  for (const auto& [device, end] : last_)
    if (failed_before(end)) return c10d::ErrorType::COMM_ERROR;
  for (const auto& [key, last] : last_messages_)
    if (failed_before(last.end)) return c10d::ErrorType::COMM_ERROR;
  return c10d::ErrorType::SUCCESS;
}

void HcclGroup::abort() {
  transport_->abort("the group was aborted on rank " + std::to_string(rank_));
}

// Queued calls go on, since other ranks may wait for them. With the group that
// the job was joined for, its ranks leave the job.
void HcclGroup::shutdown() {
  if (first_of_job_) member_->link->leave();
}

void HcclGroup::waitForPendingWorks() {
  std::vector<Point> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [device, end] : last_) all.push_back(end);
    for (const auto& [key, last] : last_messages_) all.push_back(last.end);
  }
  for (const Point& end : all)
    if (end.number < kCapturedNumber)
      host_wait(*end.stream, end.number, WaitReason::kStreamSync);
}

CommStream HcclGroup::comm_stream(int device) {
  std::lock_guard lock(mutex_);
  const auto last = last_.find(device);
  return take_comm_stream(device, CommKind::kCollective, number_,
                          last == last_.end() ? Point() : last->second);
}

// Notes where a call ends. `on_comm_stream`: it is an asynchronous collective.
void HcclGroup::ends_at(const Point& end, bool on_comm_stream) {
  std::lock_guard lock(mutex_);
  if (on_comm_stream) last_[end.stream->device()] = end;
  if (!coalescing_) return;
  for (Point& other : coalesced_)
    if (other.stream == end.stream) {
      other = end;
      return;
    }
  coalesced_.push_back(end);
}

void HcclGroup::check_capture(const Plan& plan, const Stream& stream) {
  TORCH_CHECK(!plan.on && !plan.host_waits, "hccl: ", plan.name,
              " cannot be captured in a graph, because ",
              plan.on ? "its order with other messages would be lost"
                      : "the host waits for it",
              "; call it between replays");
  TORCH_CHECK(stream.sink() == &Capture::get(), "hccl: ", plan.name,
              " cannot be given to a graph with graph_task_update_begin(): its "
              "ranks would disagree; capture another graph");
}

HcclGroup::WorkPtr HcclGroup::launch(Plan plan) {
  check_usable();
  const Tensors& some = plan.reads.empty() ? plan.writes : plan.reads;
  const int device = some.empty() || !is_npu(some[0]) ? current_device()
                                                      : some[0].get_device();
  for (const at::Tensor& t : plan.reads) check_tensor(plan.name, t, device);
  for (const at::Tensor& t : plan.writes) check_tensor(plan.name, t, device);
  Stream& current = usable_stream(device);
  const bool captured = current.sink();
  if (captured) check_capture(plan, current);
  raise_if_failed(current);
  CommStream taken =
      plan.async && !plan.on ? comm_stream(device) : CommStream();
  Stream& stream = plan.on ? *plan.on : plan.async ? *taken : current;
  auto running = std::make_unique<Running>();
  Collective& call = running->call;
  snprintf(call.agreed.name, sizeof call.agreed.name, "%s", plan.name);
  call.agreed.numel = plan.numel;
  call.agreed.root = plan.root;
  call.agreed.reduce = int8_t(plan.reduce);
  call.agreed.formats = plan.formats;
  call.agreed.dtype = some.empty() ? plan.dtype : int8_t(some[0].scalar_type());
  const uint32_t site = call_stack_id();
  call.site = site;
  call.timeout = timeout_or_default(plan.timeout);
  const uint64_t seq = plan.on ? next_message() : next_numbers(*seq_, 1);
  call.agreed.seq = seq;
  running->stream = &stream;
  running->transport = transport_;
  running->member = member_;
  running->run = std::move(plan.run);
  std::vector<ForeignView> views;
  const auto take = [&](const Tensors& from, Tensors& to, bool writes) {
    for (const at::Tensor& t : from) {
      to.push_back(host_elements(t, writes));
      if (!t.numel()) continue;
      views.push_back({t.const_data_ptr(),
                       {t.numel()},
                       {1},
                       uint32_t(t.itemsize()),
                       uint8_t(writes ? NPU_READ | NPU_WRITE : NPU_READ)});
      // The caller's stream frees the memory, and this one uses it.
      if (&stream != &current) record_stream(t.storage().data_ptr(), stream);
    }
  };
  if (&stream != &current && !stream.wait_for(current, current.end()))
    raise_stream_error(stream);
  take(plan.reads, running->reads, false);
  take(plan.writes, running->writes, true);
  const char* const op = intern_name(std::string("hccl:") + plan.name);
  ForeignWork work{op, run_call, release_call, nullptr, std::move(views), seq};
  NotedCall noted({logged_, seq, plan.on != nullptr, plan.name, site, 0,
                   uint64_t(call.timeout.count()), plan.root, plan.reduce,
                   uint64_t(stream.device()) << 32 | uint64_t(stream.id())},
                  plan.reads, plan.writes, plan.peers);
  const ProfiledCall told({name_, getGroupDesc(), rank_, member_->global},
                          call.agreed, plan.reads, plan.writes, plan.async,
                          plan.on != nullptr);
  if (captured) {
    // Each replay takes a number of its own, as many calls of the group as the
    // graph has at once. The number of the capture tells graphs apart.
    call.agreed.captured = seq + 1;
    const Draws place = Capture::get().draw(
        seq_.get(), [&] { return std::make_unique<Numbers>(seq_); }, 1);
    work.source = int(place.seed);
    work.number = place.offset;
    noted.keep();
    // Other groups find the stream busy as long as the graph may run there.
    running->lane = std::move(taken);
    running->replayed = std::make_unique<NotedCall>(std::move(noted));
  } else {
    running->entry = noted.log(seq, now_ns());
  }
  work.waits_for_peers = true;
  work.state = running.release();
  if (!submit_foreign(stream, std::move(work))) raise_stream_error(stream);
  const Point end{&stream, stream.end()};
  ends_at(end, plan.async && !plan.on);
  return c10::make_intrusive<HcclWork>(
      rank_, plan.type, CallName{member_, op, seq, site}, HcclWork::Points{end},
      plan.results.empty() ? plan.writes : std::move(plan.results),
      plan.host_waits ? HcclWork::Waits::kHost : HcclWork::Waits::kStream,
      std::move(plan.source));
}

}  // namespace npu
