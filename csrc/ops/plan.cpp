#include "csrc/ops/plan.h"

#include <ATen/EmptyTensor.h>

#include "csrc/ops/kernel_mode.h"
#include "csrc/torch/error.h"
#include "csrc/torch/tensor.h"

namespace npu {

Plan::Plan(const Op& op, at::ArrayRef<c10::IValue> arguments,
           std::vector<OutSpec> out_specs)
    : npu_kernel{&run_task, op.schema().full_name.c_str(), nullptr, 0},
      outs(std::move(out_specs)) {
  op_ = &op;
  const Op::Schema& schema = op.schema();
  args_.resize(arguments.size());
  uint32_t word = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (schema.kinds[i] == ArgKind::kGenerator) {
      generator_arg_ = int(i);
      generator_word_ = word;
    }
    add_argument(args_[i], schema.kinds[i], arguments[i], word,
                 schema.writes[i]);
  }
  n_key_words = word;
  for (const OutSpec& spec : outs) {
    at::Tensor& view = outs_.emplace_back();
    if (!spec.defined) continue;
    add_slot(view, {spec.sizes, spec.strides, spec.dtype.toScalarType(), 0},
             word, /*in_the_words=*/false, /*written=*/true);
    add_view(view, word, NPU_WRITE);
    ++word;
  }
  n_words = word;
  auto fresh = outs_.begin();
  for (const Op::Return& r : schema.returns) {
    if (r.argument >= 0 && !r.is_list) {
      results_.push_back(&args_[r.argument].tensor);
    } else if (r.argument >= 0) {
      for (at::Tensor& t : args_[r.argument].tensors) results_.push_back(&t);
    } else if (r.is_list) {
      // A list return is the only return: it takes all outputs.
      while (fresh != outs_.end()) results_.push_back(&*fresh++);
    } else {
      results_.push_back(&*fresh++);
    }
  }
  npu_kernel::views = views_.data();
  npu_kernel::n_views = uint32_t(views_.size());
}

void Plan::add_tensor(at::Tensor& view, const at::Tensor& like, uint32_t& word,
                      bool writes) {
  if (!like.defined()) return;
  uint8_t flags = like.is_conj() ? TensorFlags::kConj : 0;
  if (like.is_neg()) flags |= TensorFlags::kNeg;
  if (like.unsafeGetTensorImpl()->is_wrapped_number())
    flags |= TensorFlags::kWrapped;
  const bool in_the_words = !is_npu(like) && like.dim() == 0;
  add_slot(view,
           {like.sizes().vec(), like.strides().vec(), like.scalar_type(),
            flags},
           word, in_the_words, writes);
  if (!in_the_words)
    add_view(view, word, uint8_t(writes ? NPU_READ | NPU_WRITE : NPU_READ));
  word += in_the_words ? 2 : 1;
}

void Plan::add_scalar(at::Scalar& scalar, const at::Scalar& like,
                      uint32_t& word) {
  scalar_slots_.push_back({&scalar, like.type(), word});
  word += 2;
}

void Plan::add_view(const at::Tensor& view, uint32_t word, uint8_t access) {
  views_.push_back({view.sizes().data(), view.strides().data(),
                    uint16_t(view.dim()), uint16_t(view.itemsize()),
                    uint16_t(word), access});
  // The grain size below which torch's own element-wise loops stay serial.
  constexpr int64_t kSmall = 32768;
  if (view.numel() > kSmall) size_ = KernelSize::kLarge;
}

void Plan::add_argument(Arg& arg, ArgKind kind, const c10::IValue& value,
                        uint32_t& word, bool writes) {
  arg.constant = value;
  if (value.isNone() && kind != ArgKind::kGenerator) {
    if (kind == ArgKind::kTensor) arg.tag = Tag::kUndefined;
    return;
  }
  switch (kind) {
    case ArgKind::kTensor:
      arg.constant = {};
      arg.tag = Tag::kTensor;
      add_tensor(arg.tensor, value.toTensor(), word, writes);
      return;
    case ArgKind::kTensorList: {
      arg.constant = {};
      arg.tag = Tag::kList;
      const auto list = value.toTensorVector();
      arg.tensors.resize(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        add_tensor(arg.tensors[i], list[i], word, writes);
      return;
    }
    case ArgKind::kOptionalTensorList:
      arg.constant = {};
      arg.tag = Tag::kList;
      add_optional_tensors(arg, value, word, writes);
      return;
    case ArgKind::kScalar:
      arg.tag = Tag::kScalar;
      add_scalar(arg.scalar, value.toScalar(), word);
      return;
    case ArgKind::kScalarList: {
      arg.tag = Tag::kList;
      const auto list = value.toListRef();
      arg.scalars.resize(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        add_scalar(arg.scalars[i], list[i].toScalar(), word);
      return;
    }
    case ArgKind::kInts:
      arg.ints = value.toIntVector();
      return;
    case ArgKind::kBools:
      for (const bool b : value.toBoolList()) arg.ints.push_back(b);
      return;
    case ArgKind::kFloats:
      arg.reals = value.toDoubleVector();
      return;
    case ArgKind::kGenerator:
      arg.tag = Tag::kGenerator;
      arg.constant = {};
      word += 2;
      return;
    default:
      return;
  }
}

void Plan::add_optional_tensors(Arg& arg, const c10::IValue& value,
                                uint32_t& word, bool writes) {
  const auto list = value.toListRef();
  arg.tensors.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].isNone() || !list[i].toTensor().defined()) {
      arg.optional_tensors.push_back(std::nullopt);
      continue;
    }
    add_tensor(arg.tensors[i], list[i].toTensor(), word, writes);
    arg.optional_tensors.push_back(arg.tensors[i]);
    slots_.back().owners = 2;
  }
}

int Plan::run_task(const npu_kernel* kernel, const uint64_t* words,
                   npu_failure* failure) {
  // The launcher is this plan's only user while its task runs.
  Plan& plan = *const_cast<Plan*>(static_cast<const Plan*>(kernel));
  try {
    KernelMode mode;
    use_threads_for(plan.size_);
    plan.bind(words);
    plan.op_->run(plan);
    plan.settle();
    return NPU_OK;
  } catch (...) {
    return describe_exception(*failure);
  }
}

}  // namespace npu

