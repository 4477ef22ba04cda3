#include "csrc/ops/frame.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy.h>

#include "csrc/torch/tensor.h"
#include "csrc/torch/tensor_flags.h"

namespace npu {
namespace {

at::Scalar read_scalar(at::ScalarType type, const uint64_t* words) {
  switch (type) {
    case at::kBool:
      return at::Scalar(words[0] != 0);
    case at::kDouble:
      return at::Scalar(std::bit_cast<double>(words[0]));
    case at::kUInt64:
      return at::Scalar(words[0]);
    case at::kComplexDouble:
      return at::Scalar(c10::complex<double>(std::bit_cast<double>(words[0]),
                                             std::bit_cast<double>(words[1])));
    default:
      return at::Scalar(int64_t(words[0]));
  }
}

bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && !a.is_conj() && !a.is_neg() &&
         a.strides() == b.strides();
}

bool is_in_place(const at::Tensor& result, const at::Tensor& to) {
  return to.defined() && result.sizes() == to.sizes() &&
         same_elements(result, to) &&
         result.const_data_ptr() == to.const_data_ptr();
}

void store_one(const at::Tensor& result, const at::Tensor& to) {
  TORCH_CHECK(result.defined() == to.defined() &&
                  (!to.defined() || result.sizes() == to.sizes()),
              "npu: a result has shape ",
              result.defined() ? c10::str(result.sizes()) : "undefined",
              " where ", to.defined() ? c10::str(to.sizes()) : "undefined",
              " was inferred");
  if (!to.defined() || is_in_place(result, to)) return;
  TORCH_CHECK(result.scalar_type() == to.scalar_type(),
              "npu: a result has type ", result.scalar_type(), " where ",
              to.scalar_type(), " was inferred");
  if (same_elements(result, to) && result.is_non_overlapping_and_dense()) {
    memcpy(to.mutable_data_ptr(), result.const_data_ptr(), to.nbytes());
  } else {
    to.copy_(result);
  }
}

}  // namespace

void Frame::store(std::vector<at::Tensor> results) {
  TORCH_CHECK(results.size() == outs_.size(), "npu: ", op_.name, " returned ",
              results.size(), " results where ", outs_.size(),
              " were inferred");
  // First copies every result that lies where another result, or it itself in
  // another layout, will be written.
  for (size_t i = 0; i < results.size(); ++i)
    if (lies_in_results(results[i]) && !is_in_place(results[i], outs_[i]))
      results[i] = results[i].clone();
  for (size_t i = 0; i < results.size(); ++i) store_one(results[i], outs_[i]);
}

bool Frame::lies_in_results(const at::Tensor& t) const {
  if (!t.defined() || t.is_sparse()) return false;
  const char* at = static_cast<const char*>(t.storage().data());
  for (const at::Tensor& out : outs_) {
    if (!out.defined()) continue;
    const char* memory = static_cast<const char*>(out.const_data_ptr());
    if (at >= memory && at < memory + out.storage().nbytes()) return true;
  }
  return false;
}

at::Tensor Frame::Shape::make() const {
  return host_tensor(nullptr, sizes, strides, c10::scalarTypeToTypeMeta(dtype),
                     flags);
}

void Frame::set_shape(Slot& slot, const npu_view& view) {
  const at::IntArrayRef sizes(view.sizes, view.ndim);
  const at::IntArrayRef strides(view.strides, view.ndim);
  Shape& shape = shapes_[slot.shape];
  if (sizes == at::IntArrayRef(shape.sizes) &&
      strides == at::IntArrayRef(shape.strides))
    return;
  // The rank is the same, so nothing is allocated.
  shape.sizes.assign(sizes.begin(), sizes.end());
  shape.strides.assign(strides.begin(), strides.end());
  slot.tensor->unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  slot.storage->set_nbytes(at::detail::computeStorageNbytes(
      sizes, strides, slot.tensor->itemsize()));
}

void Frame::set_constant(Arg& arg, const Part& part) {
  const size_t count = size_t(part.detail());
  switch (part.tag()) {
    case Tag::kInt:
      arg.integer = *part.numbers();
      break;
    case Tag::kFlag:
      arg.integer = part.detail();
      if (op_.schema().kinds[size_t(part.argument)] != ArgKind::kBools) break;
      arg.ints.resize(count >> Key::kFlagsBit);
      for (size_t i = 0; i < arg.ints.size(); ++i)
        arg.ints[i] = part.detail() >> i & 1;
      break;
    case Tag::kInts:
      arg.ints.assign(part.numbers(), part.numbers() + count);
      break;
    case Tag::kFloats:
      arg.reals.resize(count);
      memcpy(arg.reals.data(), part.at, count * sizeof(double));
      break;
    case Tag::kString:
      arg.text.assign(reinterpret_cast<const char*>(part.at), count);
      break;
    default:
      break;
  }
}

void Frame::set_shapes(at::ArrayRef<npu_view> views,
                       at::ArrayRef<uint64_t> offsets) {
  size_t next = 0;
  for (Slot& slot : slots_) {
    if (slot.in_the_words) continue;
    slot.offset = offsets[next];
    set_shape(slot, views[next++]);
  }
}

void Frame::run_op() {
  runs_ = true;
  try {
    op_.run(*this);
  } catch (...) {
    runs_ = false;
    // A kernel in Python may have kept an argument, and with it a view.
    restore_views(/*has_results=*/false);
    throw;
  }
  runs_ = false;
}

void Frame::run(const uint64_t* words) {
  bind(words);
  run_op();
  restore_views(true);
}

void Frame::run_again(const uint64_t* words) {
  if (!bound_) [[unlikely]] {
    bind(words);
  } else if (seed_word_ >= 0) [[unlikely]] {
    seed_ = {words[seed_word_], words[seed_word_ + 1]};
  }
  bound_ = false;  // in case the operator throws
  run_op();
  bound_ = true;
  restore_views(true);
}

void Frame::bind(const uint64_t* words) {
  auto host_value = host_values_.begin();
  for (Slot& slot : slots_) {
    if (slot.in_the_words) [[unlikely]] {
      memcpy(host_value->words, words + slot.word, sizeof(HostValue));
      slot.address = host_value++->words;
    } else {
      slot.address = reinterpret_cast<void*>(words[slot.word] + slot.offset);
    }
    slot.storage->set_data_ptr_noswap(
        c10::DataPtr(slot.address, c10::Device(c10::kCPU)));
  }
  for (ScalarSlot& slot : scalar_slots_)
    *slot.scalar = read_scalar(slot.type, words + slot.word);
  for (const RealSlot& slot : real_slots_)
    *slot.real = std::bit_cast<double>(words[slot.word]);
  if (seed_word_ >= 0) [[unlikely]]
    seed_ = {words[seed_word_], words[seed_word_ + 1]};
}

void Frame::restore_views(bool has_results) {
  for (Slot& slot : slots_) {
    if (slot.written) [[likely]]
      set_conj(*slot.tensor, shapes_[slot.shape].flags & TensorFlags::kConj);
    const bool kept = slot.tensor->use_count() != slot.owners ||
                      slot.tensor->storage().use_count() != 1;
    const Shape& shape = shapes_[slot.shape];
    if (kept || slot.storage->data() != slot.address ||
        (slot.written &&
         (slot.tensor->sizes() != at::IntArrayRef(shape.sizes) ||
          slot.tensor->strides() != at::IntArrayRef(shape.strides))))
        [[unlikely]]
      make_anew(slot, has_results);
  }
}

void Frame::make_anew(Slot& slot, bool has_results) {
  // A list of the frame also holds this tensor, and nobody can exchange it
  // there. Kernels only read the tensors of lists.
  if (slot.listed) return;
  bound_ = false;
  const Shape& shape = shapes_[slot.shape];
  at::Tensor old = *slot.tensor;
  *slot.tensor = shape.make();
  for (Slot& s : slots_)
    if (s.first == slot.first) {
      *s.tensor = *slot.tensor;
      s.storage = slot.tensor->storage().unsafeGetStorageImpl();
    }
  if (!slot.written || !has_results) return;
  if (old.storage().data() == slot.address) {
    // A kernel may change its output's strides within the same memory.
    if (old.strides() == slot.tensor->strides()) return;
    old = old.clone();
  }
  TORCH_CHECK(old.sizes() == slot.tensor->sizes(), "npu: a result has shape ",
              old.sizes(), " where ", slot.tensor->sizes(), " was inferred");
  slot.storage->set_data_ptr_noswap(
      c10::DataPtr(slot.address, c10::Device(c10::kCPU)));
  slot.tensor->copy_(old);
}

}  // namespace npu
