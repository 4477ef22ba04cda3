// The backend `hccl` of torch.distributed: collectives as tasks of streams.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/aside.h"
#include "csrc/distributed/comm_streams.h"
#include "csrc/distributed/core/collectives.h"
#include "csrc/distributed/member.h"
#include "csrc/distributed/reduction.h"
#include "csrc/distributed/transport.h"
#include "csrc/distributed/work.h"

namespace npu {

class Stream;

using Tensors = std::vector<at::Tensor>;

// One rank's part of a group. Any thread may call, in the order in which all
// ranks call. Tags are taken at the call, so the tasks of one group may run on
// several streams at once.
class HcclGroup final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(Milliseconds timeout)
        : c10d::Backend::Options("hccl", timeout) {}
  };
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `gloo`: connects the same ranks; null for one rank. `logged`: what
  // log_group() returned.
  HcclGroup(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size,
            std::string name, Milliseconds timeout, int logged);

  // The same, once the ranks have agreed on a name for its dumps. All of them
  // call this with a store that is this group's. `global`: by rank, what the
  // job calls them.
  static c10::intrusive_ptr<HcclGroup> connect(
      const c10::intrusive_ptr<c10d::Store>& store,
      c10::intrusive_ptr<c10d::Backend> gloo, int rank, std::vector<int> global,
      std::string name, Milliseconds timeout);

  // Names the group as the user does; torch tells that name after the
  // construction.
  void describe(const std::string& description) {
    describe_group(logged_, description.c_str());
  }

  const std::string getBackendName() const override { return "hccl"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  // Null for a rank of this group that is not in `ranks`.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void setTimeout(Milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void waitForPendingWorks() override;

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(Tensors&,
                              const c10d::AllreduceCoalescedOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr allgather(std::vector<Tensors>&, Tensors&,
                    const c10d::AllgatherOptions&) override;
  WorkPtr _allgather_base(at::Tensor&, at::Tensor&,
                          const c10d::AllgatherOptions&) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>&, Tensors&,
                              const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors&, Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr gather(std::vector<Tensors>&, Tensors&,
                 const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors&, std::vector<Tensors>&,
                  const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(Tensors&, std::vector<Tensors>&,
                         const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&,
                               const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors&, Tensors&, const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                        std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;

  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // Ends it, too, and drops the messages: for a program that was refused one of
  // them.
  void cancel_coalescing();

  // A store that is the group's own.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  // A call and how its task runs: on host tensors of one dimension over the
  // device's memory, first those that it reads, then those that it writes.
  struct Plan {
    const char* name;
    c10d::OpType type;
    Tensors reads, writes;
    Milliseconds timeout;
    bool async;
    int64_t numel = 0;
    int root = -1, reduce = -1;
    // Agreement's. The dtype of a plan with tensors is theirs.
    int8_t dtype = -1;
    uint8_t formats = 0;
    std::function<void(Transport&, const Collective&, const Tensors& reads,
                       const Tensors& writes)>
        run{};
    Tensors results{};
    bool host_waits = false;
    std::shared_ptr<int> source{};
    Stream* on = nullptr;      // of a send, a recv or a batch of them
    std::vector<int> peers{};  // for send, recv: of reads, then of writes
  };
  // Where a message ends, and where it runs aside, when it has been moved.
  struct LastMessage {
    Point end;
    Aside::Future moved;
  };
  static void check_capture(const Plan& plan, const Stream& stream);
  // Lets the task move elements in the order of their indices, whatever the
  // memory formats of the tensors.
  static void move_by_index(Plan& plan);
  WorkPtr launch(Plan plan);
  uint64_t next_message() {
    std::lock_guard lock(mutex_);
    return p2p_seq_++;
  }
  WorkPtr reduce_scattered(const char* name, const at::Tensor& out,
                           const Tensors& in, const Reduction&, Milliseconds,
                           bool async);
  WorkPtr gathered(const char* name, c10d::OpType, const Tensors& out,
                   const at::Tensor& in, Milliseconds, bool async);
  WorkPtr exchanged(const char* name, const Tensors& out, const Tensors& in,
                    bool pieces, Milliseconds, bool async);
  Tensors on_root(const char* name, const char* what,
                  const std::vector<Tensors>& lists, const at::Tensor& mine,
                  int root) const;
  WorkPtr allreduce_sparse(at::Tensor&, const c10d::AllreduceOptions&);
  WorkPtr send_or_recv(bool sends, Tensors&, int peer, int tag);
  WorkPtr launch_messages(const Tensors& tensors,
                          std::vector<Message> messages);
  CommStream comm_stream(int device);
  // Messages with one peer have one home; -1 is any peer.
  uint64_t home_of(int peer) const {
    return number_ * (uint64_t(size_) + 1) + uint64_t(peer + 1);
  }
  void ends_at(const Point& end, bool on_comm_stream);
  Milliseconds timeout_or_default(Milliseconds t) const {
    return t == c10d::kUnsetTimeout ? timeout_ : t;
  }

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<Transport> transport_;
  std::shared_ptr<const Member> member_;  // since connect(), as the next
  c10::intrusive_ptr<c10d::Store> store_;
  bool first_of_job_ = false;
  const uint64_t number_;  // of the process's groups, in the order of making
  const std::string name_;
  const int logged_;
  Milliseconds timeout_;
  // The number of the next collective, which is the same on all ranks. Graphs
  // take numbers for their replays, and may outlive the group.
  const std::shared_ptr<std::atomic<uint64_t>> seq_ =
      std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex messages_mutex_;  // one send, recv or batch is launched at a time
  std::mutex mutex_;           // guards the rest
  uint64_t p2p_seq_ = 0;       // of the next send or recv
  uint64_t splits_ = 0;
  // Where the last asynchronous collective ends, by device, and the last
  // message, by device, peer and whether it is sent.
  std::map<int, Point> last_;
  std::map<std::tuple<int, int, bool>, LastMessage> last_messages_;
  bool coalescing_ = false;
  Tensors batch_tensors_;
  std::vector<Message> batch_;
  HcclWork::Points coalesced_;  // the ends of what was launched meanwhile
};

}  // namespace npu
