// send and recv. Each peer and direction has a lane, a stream of its own: on
// one ordered stream, two ranks that both send first would wait for ever.
#include "csrc/distributed/checks.h"
#include "csrc/distributed/group.h"
#include "csrc/engine/engine.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"

namespace npu {
namespace {

using c10d::OpType;

constexpr int kAnyPeer = -1, kBatch = -2;  // lanes that belong to no one peer

Message message(bool sends, const at::Tensor& t, int peer, int tag) {
  return {sends,
          peer,
          uint32_t(tag),
          {nullptr, t.nbytes()},
          int8_t(t.scalar_type())};
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
  Stream& on = batch ? lane(device, kBatch, false)
                     : lane(device, messages[0].peer, messages[0].sends);
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
  std::vector<Stream*> lanes;
  for (const bool sends : {true, false})
    for (const Message& m : messages)
      if (m.sends == sends) plan.peers.push_back(m.peer);
  for (size_t i = 0; i < messages.size(); ++i) {
    (messages[i].sends ? plan.reads : plan.writes).push_back(tensors[i]);
    if (batch)
      lanes.push_back(&lane(device, messages[i].peer, messages[i].sends));
  }
  if (messages[0].peer < 0) {
    plan.host_waits = true;
    plan.source = std::make_shared<int>(-1);
  }
  plan.run = [messages = std::move(messages), source = plan.source](
                 Transport& t, const Collective& call, const Tensors& reads,
                 const Tensors& writes) {
    std::vector<Message> moved = messages;
    size_t read = 0, written = 0;
    for (Message& m : moved)
      m.bytes.data = (m.sends ? reads[read++] : writes[written++]).data_ptr();
    t.move(moved, call);
    if (source) *source = moved[0].peer;
  };
  // The batch is ordered with what the same peers were sent before it and will
  // be sent after it.
  for (Stream* one : lanes)
    if (!on.wait_for(*one, one->tail())) raise_stream_error(on);
  const WorkPtr work = launch(std::move(plan));
  for (Stream* one : lanes)
    if (!one->wait_for(on, on.tail())) raise_stream_error(*one);
  return work;
}

void HcclGroup::startCoalescing() {
  std::lock_guard lock(mutex_);
  coalescing_ = true;
  batch_tensors_.clear();
  batch_.clear();
}

HcclGroup::WorkPtr HcclGroup::endCoalescing() {
  Tensors tensors;
  std::vector<Message> messages;
  {
    std::lock_guard lock(mutex_);
    coalescing_ = false;
    tensors.swap(batch_tensors_);
    messages.swap(batch_);
  }
  if (!messages.empty()) return launch_messages(tensors, std::move(messages));
  // Collectives were launched one by one; the batch ends with the last of them.
  Stream& stream = comm_stream(current_device());
  return c10::make_intrusive<HcclWork>(
      rank_, OpType::COALESCED, getSequenceNumberForGroup(),
      Point{&stream, stream.tail()}, Tensors{}, HcclWork::Waits::kStream);
}

}  // namespace npu
