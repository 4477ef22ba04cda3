// send and recv. What is sent and what is received goes through different
// streams: on one ordered stream, two ranks that both send first would wait for
// ever. Messages to one peer, and those from it, keep their order.
#include "csrc/distributed/checks.h"
#include "csrc/distributed/group.h"
#include "csrc/distributed/reduce_parts.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

using c10d::OpType;

constexpr int kAnyPeer = -1;

Message message(bool sends, const at::Tensor& t, int peer, int tag) {
  return {sends,
          peer,
          uint32_t(tag),
          bytes_of(host_elements(t, !sends)),
          int8_t(t.scalar_type()),
          memory_formats(t)};
}

}  // namespace

HcclGroup::WorkPtr HcclGroup::send_or_recv(bool sends, Tensors& tensors,
                                           int peer, int tag) {
  const char* const name = sends ? "send" : "recv";
  const at::Tensor& t = only(name, tensors);
  TORCH_CHECK_VALUE(peer < size_ && peer != rank_, "hccl: ", name, ": rank ",
                    peer, " is not another of the group's ", size_);
  TORCH_CHECK_VALUE(tag >= 0 && tag <= Transport::kMostTag, "hccl: ", name,
                    ": tag ", tag, " is not between 0 and ",
                    Transport::kMostTag);
  check_tensor(name, t, t.is_privateuseone() ? t.get_device() : 0);
  {
    std::lock_guard lock(mutex_);
    if (coalescing_) {
      TORCH_CHECK(peer >= 0, "hccl: a recv from any rank cannot be batched");
      batch_tensors_.push_back(t);
      batch_.push_back(message(sends, t, peer, tag));
      // Nobody waits for this Work: the batch has one of its own.
      return c10::make_intrusive<c10d::Work>(
          rank_, sends ? OpType::SEND : OpType::RECV);
    }
  }
  return launch_messages({t}, {message(sends, t, peer, tag)});
}

HcclGroup::WorkPtr HcclGroup::send(Tensors& tensors, int peer, int tag) {
  TORCH_CHECK_VALUE(peer >= 0, "hccl: send to rank ", peer);
  return send_or_recv(true, tensors, peer, tag);
}

HcclGroup::WorkPtr HcclGroup::recv(Tensors& tensors, int peer, int tag) {
  TORCH_CHECK_VALUE(peer >= 0, "hccl: recv from rank ", peer);
  return send_or_recv(false, tensors, peer, tag);
}

HcclGroup::WorkPtr HcclGroup::recvAnysource(Tensors& tensors, int tag) {
  return send_or_recv(false, tensors, kAnyPeer, tag);
}

HcclGroup::WorkPtr HcclGroup::launch_messages(const Tensors& tensors,
                                              std::vector<Message> messages) {
  const bool batch = messages.size() > 1;
  const int device = tensors[0].get_device();
  const auto launching = lock_released(messages_mutex_);
  // The messages that these come behind.
  std::map<std::tuple<int, int, bool>, LastMessage> before;
  {
    std::lock_guard lock(mutex_);
    for (const Message& m : messages) {
      const std::tuple key(device, m.peer, m.sends);
      const auto last = last_messages_.find(key);
      before[key] = last == last_messages_.end() ? LastMessage() : last->second;
    }
  }
  const CommStream taken =
      take_comm_stream(device,
                       batch               ? CommKind::kBatch
                       : messages[0].sends ? CommKind::kSend
                                           : CommKind::kRecv,
                       home_of(std::get<1>(before.begin()->first)),
                       batch ? Point() : before.begin()->second.end);
  Stream& on = *taken;
  Plan plan{batch               ? "batch_isend_irecv"
            : messages[0].sends ? "send"
                                : "recv",
            batch               ? OpType::COALESCED
            : messages[0].sends ? OpType::SEND
                                : OpType::RECV,
            {},
            {},
            timeout_,
            true};
  plan.on = &on;
  for (const bool sends : {true, false})
    for (const Message& m : messages)
      if (m.sends == sends) plan.peers.push_back(m.peer);
  for (size_t i = 0; i < messages.size(); ++i)
    (messages[i].sends ? plan.reads : plan.writes).push_back(tensors[i]);
  if (messages[0].peer < 0) {
    plan.host_waits = true;
    plan.source = std::make_shared<int>(-1);
  }
  bool apart = taken.shared();
  for (const auto& [key, last] : before) {
    if (!last.end.stream) continue;
    if (const auto error = error_before(*last.end.stream, last.end.number))
      raise_error(*error);
    // The end of one that runs aside comes behind what its stream had to do.
    apart |= last.moved.valid() &&
             !last.end.stream->retired().reached(last.end.number);
  }
  const auto move = [messages = std::move(messages), source = plan.source](
                        Transport& t, const Collective& call) {
    std::vector<Message> moved = messages;
    t.move(moved, call);
    if (source) *source = moved[0].peer;
  };
  Stream& current = usable_stream(device);
  const Point inputs{&current, current.tail()};
  std::shared_ptr<Aside> aside;
  if (apart) {
    aside = std::make_shared<Aside>();
    // A task that is dropped waits, too: its memory is used until then.
    const std::shared_ptr<void> waits(nullptr,
                                      [aside](void*) { aside->leave(); });
    plan.run = [waits, moved = aside->future()](
                   Transport&, const Collective&, const Tensors&,
                   const Tensors&) { moved.get(); };
  } else {
    plan.run = [move](Transport& t, const Collective& call, const Tensors&,
                      const Tensors&) { move(t, call); };
    for (const auto& [key, last] : before)
      if (last.end.stream && !on.wait_for(*last.end.stream, last.end.number))
        raise_stream_error(on);
  }
  const WorkPtr work = launch(std::move(plan));
  if (aside) {
    std::vector<Point> after{inputs};
    std::vector<Aside::Future> others;
    for (const auto& [key, last] : before) {
      if (last.moved.valid())
        others.push_back(last.moved);
      else if (last.end.stream)
        after.push_back(last.end);
    }
    Collective call;
    call.timeout = timeout_;
    Aside::start(
        aside, std::move(after), std::move(others),
        [move, transport = transport_, call] { move(*transport, call); });
  }
  const LastMessage mine{{&on, on.tail()},
                         aside ? aside->future() : Aside::Future()};
  std::lock_guard lock(mutex_);
  for (const auto& [key, last] : before) last_messages_[key] = mine;
  return work;
}

void HcclGroup::startCoalescing() {
  cancel_coalescing();  // what an earlier one has left
  std::lock_guard lock(mutex_);
  coalescing_ = true;
}

void HcclGroup::cancel_coalescing() {
  std::lock_guard lock(mutex_);
  coalescing_ = false;
  batch_tensors_.clear();
  batch_.clear();
  coalesced_.clear();
}

HcclGroup::WorkPtr HcclGroup::endCoalescing() {
  Tensors tensors;
  std::vector<Message> messages;
  HcclWork::Points ends;
  {
    std::lock_guard lock(mutex_);
    tensors.swap(batch_tensors_);
    messages.swap(batch_);
    ends.swap(coalesced_);
    coalescing_ = false;
  }
  if (!messages.empty()) {
    const std::tuple key(tensors[0].get_device(), messages[0].peer,
                         messages[0].sends);
    const WorkPtr batch = launch_messages(tensors, std::move(messages));
    if (ends.empty()) return batch;
    std::lock_guard lock(mutex_);
    ends.push_back(last_messages_.at(key).end);
  }
  return c10::make_intrusive<HcclWork>(
      rank_, OpType::COALESCED,
      CallName{member_, intern_name("hccl:coalesced"),
               getSequenceNumberForGroup(), call_stack_id()},
      std::move(ends), Tensors{}, HcclWork::Waits::kStream);
}

}  // namespace npu
