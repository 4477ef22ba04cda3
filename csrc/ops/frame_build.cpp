// Makes frames: a view for each tensor, and where each finds its words.
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "csrc/ops/frame.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {

at::Tensor make_view(at::IntArrayRef sizes, at::IntArrayRef strides,
                     at::ScalarType dtype, uint8_t flags) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(nullptr, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
      // Some kernels use their output as scratch space and grow it.
      /*resizable=*/true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  set_flags(*t.unsafeGetTensorImpl(), flags);
  return t;
}

Frame::Frame(const Op& op, at::ArrayRef<c10::IValue> arguments,
             const std::vector<OutSpec>& outs)
    : op_(op), args_(arguments.size()) {
  const Op::Schema& schema = op.schema();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (schema.kinds[i] == ArgKind::kGenerator) {
      generator_arg_ = int(i);
      generator_word_ = next_word_;
    }
    add_argument(args_[i], schema.kinds[i], arguments[i], schema.writes[i]);
    if (!args_[i].tensor.defined()) continue;
    for (size_t earlier = 0; earlier < i; ++earlier)
      if (args_[earlier].tensor.defined() &&
          arguments[earlier].toTensor().is_same(arguments[i].toTensor())) {
        join(args_[earlier].tensor, args_[i].tensor);
        break;
      }
  }
  outs_.reserve(outs.size());
  for (const OutSpec& spec : outs) {
    at::Tensor& view = outs_.emplace_back();
    if (!spec.defined) continue;
    add_slot(view, {spec.sizes, spec.strides, spec.dtype.toScalarType(), 0},
             /*in_the_words=*/false, /*written=*/true);
    ++next_word_;
  }
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
}

void Frame::add_slot(at::Tensor& view, Shape shape, bool in_the_words,
                     bool written) {
  view = make_view(shape.sizes, shape.strides, shape.dtype, shape.flags);
  slots_.push_back({&view, view.storage().unsafeGetStorageImpl(), nullptr, 0,
                    next_word_, uint32_t(shapes_.size()), 1,
                    uint32_t(slots_.size()), in_the_words, written,
                    /*listed=*/false});
  shapes_.push_back(std::move(shape));
}

void Frame::join(const at::Tensor& view, at::Tensor& with) {
  Slot& last = slots_.back();
  const auto first = std::find_if(slots_.begin(), slots_.end(),
                                  [&](Slot& s) { return s.tensor == &view; });
  with = view;
  last.first = uint32_t(first - slots_.begin());
  bool written = false;
  uint32_t owners = 0;
  for (const Slot& s : slots_)
    if (s.first == last.first) {
      written = written || s.written;
      ++owners;
    }
  for (Slot& s : slots_)
    if (s.first == last.first) {
      s.storage = view.storage().unsafeGetStorageImpl();
      s.written = written;
      s.owners = owners;
    }
}

void Frame::add_tensor(at::Tensor& view, const at::Tensor& like, bool writes) {
  if (!like.defined()) return;
  const bool in_the_words = like.device().is_cpu();
  add_slot(view,
           {at::DimVector(like.sizes()), at::DimVector(like.strides()),
            like.scalar_type(), flags_of(*like.unsafeGetTensorImpl())},
           in_the_words, writes);
  next_word_ += in_the_words ? 2 : 1;
  if (in_the_words) host_values_.emplace_back();
}

void Frame::add_scalar(at::Scalar& scalar, const at::Scalar& like) {
  scalar_slots_.push_back({&scalar, like.type(), next_word_});
  next_word_ += 2;
}

void Frame::add_optional_tensors(Arg& arg, const c10::IValue& value) {
  const auto list = value.toListRef();
  arg.tensors.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].isNone() || !list[i].toTensor().defined()) {
      arg.optional_tensors.push_back(std::nullopt);
      continue;
    }
    add_tensor(arg.tensors[i], list[i].toTensor(), /*writes=*/false);
    arg.optional_tensors.push_back(arg.tensors[i]);
    slots_.back().owners = 2;
    slots_.back().listed = true;
  }
}

void Frame::add_argument(Arg& arg, ArgKind kind, const c10::IValue& value,
                         bool writes) {
  if (kind == ArgKind::kGenerator) {
    arg.tag = Tag::kGenerator;
    next_word_ += 2;
    return;
  }
  if (value.isNone()) {
    if (kind == ArgKind::kTensor) arg.tag = Tag::kUndefined;
    return;
  }
  switch (kind) {
    case ArgKind::kTensor:
      arg.tag = Tag::kTensor;
      add_tensor(arg.tensor, value.toTensor(), writes);
      return;
    case ArgKind::kTensorList: {
      arg.tag = Tag::kList;
      const auto list = value.toTensorVector();
      arg.tensors.resize(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        add_tensor(arg.tensors[i], list[i], writes);
      return;
    }
    case ArgKind::kOptionalTensorList:
      arg.tag = Tag::kList;
      add_optional_tensors(arg, value);
      return;
    case ArgKind::kScalar:
      arg.tag = Tag::kScalar;
      add_scalar(arg.scalar, value.toScalar());
      return;
    case ArgKind::kScalarList: {
      arg.tag = Tag::kList;
      const auto list = value.toListRef();
      arg.scalars.resize(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        add_scalar(arg.scalars[i], list[i].toScalar());
      return;
    }
    case ArgKind::kFloat:
      arg.tag = Tag::kFloat;
      real_slots_.push_back({&arg.real, next_word_++});
      return;
    default:
      set_constant(arg, kind, value);
  }
}

}  // namespace npu
