#include "csrc/distributed/group.h"

#include <ATen/core/grad_mode.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/distributed/checks.h"
#include "csrc/distributed/comm_streams.h"
#include "csrc/engine/engine.h"
#include "csrc/interop/foreign.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/kernel_threads.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

// A call between its launch and its end. It refers to the device's memory,
// which the allocator keeps from reuse, and owns none of it.
struct Running {
  std::shared_ptr<Transport> transport;
  std::string where;  // "group 'default', rank 0 of 2"
  Collective call;
  Tensors reads, writes;
  std::function<void(Transport&, const Collective&, const Tensors&,
                     const Tensors&)>
      run;
  LoggedCollective entry;
  int threads = launch_threads();
};

void fail(const Running& r, npu_failure& failure, const char* why) {
  snprintf(failure.text, sizeof failure.text, "%s, %s #%llu: %s",
           r.where.c_str(), r.call.agreed.name,
           (unsigned long long)r.call.agreed.seq, why);
}

int run_call(void* state, npu_failure& failure) {
  Running& r = *static_cast<Running*>(state);
  use_threads_for(KernelSize::kLarge, r.threads);
  const at::NoGradGuard no_grad;
  r.entry.started(now_ns());
  try {
    r.run(*r.transport, r.call, r.reads, r.writes);
    r.entry.ended(now_ns(), false);
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
  r->entry.ended(now_ns(), true);
  delete r;
}

}  // namespace

std::string group_rank_text(const std::string& name, int rank, int size) {
  return "group '" + name + "', rank " + std::to_string(rank) + " of " +
         std::to_string(size);
}

HcclGroup::HcclGroup(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size,
                     std::string name, Milliseconds timeout, int logged)
    : Backend(rank, size),
      gloo_(std::move(gloo)),
      transport_(std::make_shared<Transport>(gloo_, rank, size)),
      name_(std::move(name)),
      logged_(logged),
      timeout_(timeout) {
  init();
}

HcclGroup::~HcclGroup() {
  // A failed stream keeps its error, so it is not given to another group.
  for (const auto& [device, stream] : comm_)
    if (!stream->failed()) give_comm_stream(*stream);
  for (const auto& [key, stream] : lanes_)
    if (!stream->failed()) give_comm_stream(*stream);
}

c10::intrusive_ptr<c10d::Backend::Options> HcclGroup::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(timeout_);
  options->group_name = name_;
  return options;
}

void HcclGroup::setTimeout(Milliseconds timeout) { timeout_ = timeout; }

uint64_t HcclGroup::getSequenceNumberForGroup() {
  std::lock_guard lock(mutex_);
  return seq_;
}

c10d::ErrorType HcclGroup::getError() {
  std::lock_guard lock(mutex_);
  for (const auto& [device, stream] : comm_)
    if (stream->failed()) return c10d::ErrorType::COMM_ERROR;
  return c10d::ErrorType::SUCCESS;
}

void HcclGroup::abort() {
  transport_->abort("the group was aborted on rank " + std::to_string(rank_));
}

// Queued calls go on, since other ranks may wait for them.
void HcclGroup::shutdown() {}

void HcclGroup::waitForPendingWorks() {
  std::vector<Stream*> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [device, stream] : comm_) all.push_back(stream);
    for (const auto& [key, stream] : lanes_) all.push_back(stream);
  }
  for (Stream* stream : all)
    host_wait(*stream, stream->tail(), WaitReason::kStreamSync);
}

Stream& HcclGroup::comm_stream(int device) {
  std::lock_guard lock(mutex_);
  Stream*& stream = comm_[device];
  if (!stream) stream = &take_comm_stream(device);
  return *stream;
}

Stream& HcclGroup::lane(int device, int peer, bool sends) {
  std::lock_guard lock(mutex_);
  Stream*& stream = lanes_[{device, peer, sends}];
  if (!stream) stream = &take_comm_stream(device);
  return *stream;
}

LoggedCollective HcclGroup::note(const Plan& plan, const Collective& call,
                                 const Stream& stream) {
  // A call in place reads what it writes.
  const bool in_place = plan.reads.empty();
  const Tensors& in = in_place ? plan.writes : plan.reads;
  const bool read_only = plan.writes.empty() && plan.peers.empty();
  const Tensors& out = read_only ? plan.reads : plan.writes;
  constexpr size_t kMost = kShapeWords;  // each tensor takes a word at least
  TensorShape shapes[kMost];
  size_t n = 0;
  const auto add = [&](const Tensors& list, bool output, size_t first) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (n == kMost) break;
      const int peer = plan.peers.empty() ? -1 : plan.peers[first + i];
      shapes[n++] = {list[i].sizes().data(), list[i].sizes().size(),
                     uint8_t(list[i].scalar_type()), output, peer};
    }
  };
  if (!in_place || plan.peers.empty()) add(in, false, 0);
  add(out, true, plan.reads.size());
  const Agreement& a = call.agreed;
  return log_collective(
      {logged_, a.seq, plan.on != nullptr, a.name, call.site, now_ns(),
       uint64_t(call.timeout.count()), a.root, a.reduce,
       uint64_t(stream.device()) << 32 | uint64_t(stream.id()), shapes, n});
}

HcclGroup::WorkPtr HcclGroup::launch(Plan plan) {
  check_usable();
  const Tensors& some = plan.reads.empty() ? plan.writes : plan.reads;
  const int device = some.empty() || !is_npu(some[0]) ? current_device()
                                                      : some[0].get_device();
  for (const at::Tensor& t : plan.reads) check_tensor(plan.name, t, device);
  for (const at::Tensor& t : plan.writes) check_tensor(plan.name, t, device);
  Stream& current = usable_stream(device);
  TORCH_CHECK(!current.sink(), "hccl: ", plan.name,
              " cannot be captured in a graph: its messages would carry the "
              "same tags at each replay; call it between replays");
  raise_if_failed(current);
  Stream& stream = plan.on      ? *plan.on
                   : plan.async ? comm_stream(device)
                                : current;
  auto running = std::make_unique<Running>();
  Collective& call = running->call;
  snprintf(call.agreed.name, sizeof call.agreed.name, "%s", plan.name);
  call.agreed.numel = plan.numel;
  call.agreed.root = plan.root;
  call.agreed.reduce = int8_t(plan.reduce);
  if (!some.empty()) call.agreed.dtype = int8_t(some[0].scalar_type());
  call.site = call_site().site;
  call.timeout = timeout_or_default(plan.timeout);
  {
    std::lock_guard lock(mutex_);
    call.agreed.seq = plan.on ? p2p_seq_++ : seq_++;
  }
  running->transport = transport_;
  running->where = group_rank_text(name_, rank_, size_);
  running->run = std::move(plan.run);
  std::vector<ForeignView> views;
  const auto take = [&](const Tensors& from, Tensors& to, bool writes) {
    for (const at::Tensor& t : from) {
      to.push_back(host_elements(t, writes));
      if (!t.numel()) continue;
      views.push_back({t.const_data_ptr(),
                       {t.numel()},
                       {1},
                       uint16_t(t.itemsize()),
                       uint8_t(writes ? NPU_READ | NPU_WRITE : NPU_READ)});
      // The caller's stream frees the memory, and this one uses it.
      if (&stream != &current) record_stream(t.storage().data_ptr(), stream);
    }
  };
  if (&stream != &current && !stream.wait_for(current, current.tail()))
    raise_stream_error(stream);
  take(plan.reads, running->reads, false);
  take(plan.writes, running->writes, true);
  const uint64_t seq = call.agreed.seq;  // `call` moves to the task below
  running->entry = note(plan, call, stream);
  const ForeignWork work{intern_name(std::string("hccl:") + plan.name),
                         run_call, release_call, running.release(),
                         std::move(views)};
  if (!submit_foreign(stream, work)) raise_stream_error(stream);
  return c10::make_intrusive<HcclWork>(
      rank_, plan.type, seq, Point{&stream, stream.tail()},
      plan.results.empty() ? plan.writes : std::move(plan.results),
      plan.host_waits ? HcclWork::Waits::kHost : HcclWork::Waits::kStream,
      std::move(plan.source));
}

}  // namespace npu
