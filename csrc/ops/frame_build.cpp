// Makes frames: a view for each tensor, and where each finds its words.
#include <algorithm>

#include "csrc/ops/frame.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {

Frame::Frame(const Op& op, at::ArrayRef<uint64_t> key,
             const std::vector<OutSpec>& outs)
    : op_(op), args_(op.schema().kinds.size()) {
  const Op::Schema& schema = op.schema();
  uint32_t word = read_key(key, [&](const Part& part) { add_part(part); });
  for (size_t i = 0; i < args_.size(); ++i) {
    if (schema.kinds[i] != ArgKind::kOptionalTensorList) continue;
    auto& list = args_[i].optional_tensors.emplace();
    for (const at::Tensor& t : args_[i].tensors)
      list.push_back(t.defined() ? std::optional(t) : std::nullopt);
  }
  outs_.reserve(outs.size());
  for (const OutSpec& spec : outs) {
    at::Tensor& view = outs_.emplace_back();
    if (!spec.defined) continue;
    add_slot(view, {spec.sizes, spec.strides, spec.dtype.toScalarType(), 0},
             word++, /*written=*/true);
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

void Frame::add_part(const Part& part) {
  if (part.tag() == Tag::kOverlap) {
    if (part.one_tensor())
      join(args_[part.written()].tensor, args_[part.other()].tensor);
    return;
  }
  Arg& arg = args_[size_t(part.argument)];
  const ArgKind kind = op_.schema().kinds[size_t(part.argument)];
  if (part.element < 0) arg.tag = part.tag();
  const size_t element = size_t(part.element);
  switch (part.tag()) {
    case Tag::kTensor:
    case Tag::kHostScalar:
      return add_tensor(part.element < 0 ? arg.tensor : arg.tensors[element],
                        part);
    case Tag::kScalar:
      scalar_slots_.push_back(
          {part.element < 0 ? &arg.scalar : &arg.scalars[element],
           at::ScalarType(part.detail() & 0xff), part.word});
      return;
    case Tag::kFloat:
      real_slots_.push_back({&arg.real, part.word});
      return;
    case Tag::kGenerator:
      seed_word_ = int(part.word);
      return;
    case Tag::kList:
      if (kind == ArgKind::kScalarList)
        arg.scalars.resize(size_t(part.detail()));
      else
        arg.tensors.resize(size_t(part.detail()));
      return;
    default:
      return set_constant(arg, part);
  }
}

void Frame::add_tensor(at::Tensor& view, const Part& part) {
  const Op::Schema& schema = op_.schema();
  const size_t argument = size_t(part.argument);
  const at::DimVector sizes(part.sizes());
  add_slot(view,
           {sizes,
            part.is_default() ? default_strides(sizes)
                              : at::DimVector(part.strides()),
            part.dtype(), part.flags()},
           part.word, schema.writes[argument]);
  Slot& slot = slots_.back();
  slot.in_the_words = part.tag() == Tag::kHostScalar;
  if (slot.in_the_words) host_values_.emplace_back();
  slot.listed = schema.kinds[argument] == ArgKind::kOptionalTensorList;
  if (slot.listed) slot.owners = 2;
}

void Frame::add_slot(at::Tensor& view, Shape shape, uint32_t word,
                     bool written) {
  view = shape.make();
  slots_.push_back({&view, view.storage().unsafeGetStorageImpl(), nullptr, 0,
                    word, uint32_t(shapes_.size()), 1, uint32_t(slots_.size()),
                    /*in_the_words=*/false, written,
                    /*listed=*/false});
  shapes_.push_back(std::move(shape));
}

void Frame::join(at::Tensor& one, at::Tensor& other) {
  const auto first_of = [&](const at::Tensor& view) {
    return std::find_if(slots_.begin(), slots_.end(),
                        [&](const Slot& s) { return s.tensor == &view; });
  };
  const auto a = first_of(one), b = first_of(other);
  // An element of a list stays by itself.
  if (a == slots_.end() || b == slots_.end()) return;
  const uint32_t first = std::min(a->first, b->first);
  const uint32_t last = std::max(a->first, b->first);
  const at::Tensor view = *slots_[first].tensor;
  bool written = false;
  uint32_t owners = 0;
  for (Slot& s : slots_)
    if (s.first == first || s.first == last) {
      *s.tensor = view;
      s.storage = view.storage().unsafeGetStorageImpl();
      s.first = first;
      written = written || s.written;
      ++owners;
    }
  for (Slot& s : slots_)
    if (s.first == first) {
      s.written = written;
      s.owners = owners;
    }
}

}  // namespace npu
