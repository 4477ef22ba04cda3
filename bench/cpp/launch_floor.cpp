// The least that a backend of PyTorch can cost its caller: operators that
// compute nothing.
//
// bench/launch_profile.py loads it beside torch and counts instructions of
// calls on the device `maia`, a key that nothing else here uses. An operator
// that returns a new tensor takes a block from a list, makes a tensor over it
// and returns; the others return at once. What such a call costs is torch's:
// the Python binding, the dispatcher, autograd and the tensor's own objects.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr c10::DeviceType kDevice = c10::DeviceType::MAIA;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::MAIA);

// Blocks of one size, last in first out: no allocator needs less.
struct Block {
  Block* next;
  char bytes[1024];
};
Block* free_blocks = nullptr;

void give(void* context) {
  Block* const block = static_cast<Block*>(context);
  block->next = free_blocks;
  free_blocks = block;
}

c10::DataPtr take() {
  Block* block = free_blocks;
  if (block) {
    free_blocks = block->next;
  } else {
    block = new Block;
  }
  return {block->bytes, block, &give, c10::Device(kDevice, 0)};
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t) override { return take(); }
  void copy_data(void*, const void*, size_t) const override {}
};
Allocator allocator;

at::Tensor make(at::IntArrayRef sizes, caffe2::TypeMeta dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), sizeof(Block::bytes), take(),
      &allocator, /*resizable=*/true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                          kKeys, dtype);
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

at::Tensor make_like(const at::Tensor& t) { return make(t.sizes(), t.dtype()); }

at::Tensor add(const at::Tensor& a, const at::Tensor&, const at::Scalar&) {
  return make_like(a);
}
at::Tensor& add_out(const at::Tensor&, const at::Tensor&, const at::Scalar&,
                    at::Tensor& out) {
  return out;
}
at::Tensor& add_(at::Tensor& self, const at::Tensor&, const at::Scalar&) {
  return self;
}
at::Tensor mm(const at::Tensor& a, const at::Tensor&) { return make_like(a); }
at::Tensor addmm(const at::Tensor&, const at::Tensor& a, const at::Tensor&,
                 const at::Scalar&, const at::Scalar&) {
  return make_like(a);
}
at::Tensor& relu_(at::Tensor& self) { return self; }
at::Tensor sum(const at::Tensor& a, std::optional<at::ScalarType>) {
  return make({}, a.dtype());
}
at::Tensor cat(const at::ITensorListRef& list, int64_t) {
  const at::Tensor& first = *list.begin();
  return make({2 * first.size(0), first.size(1)}, first.dtype());
}
at::Tensor softmax(const at::Tensor& a, int64_t, bool) { return make_like(a); }
at::Tensor& copy_(at::Tensor& self, const at::Tensor&, bool) { return self; }
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}
at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes,
                      c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}
at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef,
                         std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>,
                         std::optional<bool>) {
  return make(C10_AS_INTARRAYREF_SLOW(sizes),
              c10::scalarTypeToTypeMeta(dtype.value_or(at::kFloat)));
}

C10_REGISTER_GUARD_IMPL(MAIA, c10::impl::NoOpDeviceGuardImpl<kDevice>)

TORCH_LIBRARY_IMPL(aten, MAIA, m) {
  m.impl("add.Tensor", TORCH_FN(add));
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("add_.Tensor", TORCH_FN(add_));
  m.impl("mm", TORCH_FN(mm));
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("relu_", TORCH_FN(relu_));
  m.impl("sum", TORCH_FN(sum));
  m.impl("cat", TORCH_FN(cat));
  m.impl("_softmax", TORCH_FN(softmax));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("view", TORCH_FN(view));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace
