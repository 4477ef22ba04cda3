// all_reduce of sparse tensors: the ranks exchange what they have, and each
// adds it up.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/distributed/checks.h"
#include "csrc/distributed/group.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"

namespace npu {
namespace {

constexpr char kName[] = "all_reduce_sparse";

// What ranks tell each other first: how many elements they have, how many
// dimensions are sparse, and all sizes.
std::vector<int64_t> shape_of(const at::Tensor& t) {
  std::vector<int64_t> shape{t._nnz(), t.sparse_dim()};
  for (const int64_t n : t.sizes()) shape.push_back(n);
  return shape;
}

std::string text_of(int rank, const std::vector<int64_t>& shape) {
  std::string text = "rank " + std::to_string(rank) + " has sizes [";
  for (size_t i = 2; i < shape.size(); ++i)
    text += (i > 2 ? ", " : "") + std::to_string(shape[i]);
  return text + "], " + std::to_string(shape[1]) + " of them sparse";
}

// Throws unless the ranks' shapes are the same but for the number of elements.
void compare(const std::vector<std::vector<int64_t>>& shapes, int rank) {
  const std::vector<int64_t>& mine = shapes[rank];
  for (size_t p = 0; p < shapes.size(); ++p)
    if (!std::equal(mine.begin() + 1, mine.end(), shapes[p].begin() + 1))
      throw std::runtime_error(
          "the ranks disagree: " + text_of(int(p), shapes[p]) + "; " +
          text_of(rank, mine));
}

}  // namespace

// The host waits: how much arrives is known only when all ranks have called.
HcclGroup::WorkPtr HcclGroup::allreduce_sparse(
    at::Tensor& t, const c10d::AllreduceOptions& o) {
  TORCH_CHECK_VALUE(t.device().type() == kNpu, "hccl: ", kName,
                    " needs npu tensors, got one on ", t.device());
  const Reduction reduction = reduction_of(o.reduceOp);
  TORCH_CHECK_TYPE(reduction.op == c10d::ReduceOp::SUM,
                   "hccl: all_reduce of sparse tensors does SUM only");
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard guard(t.device());
  const at::Tensor mine = t.coalesce();
  const auto shapes = std::make_shared<std::vector<std::vector<int64_t>>>(
      size_, shape_of(mine));
  Plan plan{kName, c10d::OpType::ALLREDUCE, {}, {}, o.timeout, o.asyncOp};
  plan.numel = t.numel();
  plan.dtype = int8_t(t.scalar_type());
  plan.host_waits = true;
  plan.run = [shapes](Transport& t, const Collective& call, const Tensors&,
                      const Tensors&) {
    const auto bytes = [&](int p) {
      std::vector<int64_t>& shape = (*shapes)[p];
      return Bytes{shape.data(), shape.size() * sizeof shape[0]};
    };
    std::vector<Bytes> out(t.size()), in(t.size());
    for (int p = 0; p < t.size(); ++p) {
      if (p == t.rank()) continue;
      out[p] = bytes(t.rank());
      in[p] = bytes(p);
    }
    t.exchange(call, out, in);
    compare(*shapes, t.rank());
  };
  launch(std::move(plan))->wait(kNoTimeout);
  Tensors indices, values;
  const int64_t sparse = mine.sparse_dim();
  for (const std::vector<int64_t>& shape : *shapes) {
    indices.push_back(at::empty({sparse, shape[0]}, mine.indices().options()));
    std::vector<int64_t> sizes(mine.values().sizes().vec());
    sizes[0] = shape[0];
    values.push_back(at::empty(sizes, mine.values().options()));
  }
  for (const auto& [all, one] :
       {std::pair(&indices, mine.indices()), std::pair(&values, mine.values())})
    gathered(kName, c10d::OpType::ALLREDUCE, *all, one.contiguous(), o.timeout,
             o.asyncOp)
        ->wait(kNoTimeout);
  t.copy_(at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values),
                                        t.sizes())
              .coalesce());
  Stream& current = usable_stream(t.get_device());
  return c10::make_intrusive<HcclWork>(
      rank_, c10d::OpType::ALLREDUCE,
      CallName{member_, "hccl:all_reduce_sparse",
               getSequenceNumberForGroup() - 1, call_stack_id()},
      HcclWork::Points{{&current, current.tail()}}, Tensors{t},
      HcclWork::Waits::kStream);
}

namespace {

// torch has this for the sparse tensors of cpu and CUDA.
std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>>
allreduce_of_group(at::TensorList tensors,
                   const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                   const c10::intrusive_ptr<c10d::ReduceOp>& op,
                   const std::optional<at::Tensor>&, bool async,
                   int64_t timeout) {
  c10d::AllreduceOptions options;
  options.reduceOp = *op;
  options.timeout = Milliseconds(timeout);
  options.asyncOp = async;
  std::vector<at::Tensor> list = tensors.vec();
  auto work = group->getBackend(kNpu)->allreduce(list, options);
  return {std::move(list), std::move(work)};
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", allreduce_of_group);
}

}  // namespace
}  // namespace npu
