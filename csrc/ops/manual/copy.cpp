// Copies between devices and the host, with CUDA's rules of who waits.
//
//   npu to npu            queued
//   npu to pinned, async  queued; the host must wait before it reads
//   npu to host           waits
//   host to npu           read before return (small ones travel in the task,
//                         larger ones through pinned memory or by waiting);
//                         from pinned, async: queued, read later
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Copy.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/MaybeOwned.h>

#include "csrc/engine/engine.h"
#include "csrc/engine/profiling.h"
#include "csrc/graph/capture.h"
#include "csrc/host/kernel_mode.h"
#include "csrc/observe/work_names.h"
#include "csrc/ops/frame.h"
#include "csrc/ops/kernels.h"
#include "csrc/ops/launch.h"
#include "csrc/ops/unrecorded.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/deferred_delete.h"
#include "csrc/taskqueue/event.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/copy_bytes.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/host_use.h"
#include "csrc/torch/storage_end.h"
#include "csrc/torch/tensor.h"

namespace npu {
namespace {

// Above this size a blocking copy waits, instead of copying to pinned memory
// first.
constexpr size_t kMaxStagedCopy = 4 << 20;

void run_copy(Frame& f) { f.tensor(0).copy_(f.tensor(1)); }

constexpr const char* kCopyName = "aten::copy_";

// copy_ itself, between two tensors that the device can reach and that do not
// overlap in a way that it refuses.
const Op kCopy(kCopyName, "", &run_copy, NumbersInKey::kNo, Meta::kSeparate,
               nullptr, /*compared=*/0);

// A handle that is borrowed where it can be.
using Maybe = c10::MaybeOwned<at::Tensor>;

void copy_by_kernel(const at::Tensor& to, const at::Tensor& from) {
  call_in_place<0>(kCopy, to, from, false);
}

bool read_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.strides() == b.strides() &&
         a.sizes() == b.sizes() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

// Whether the two differ in nothing but their addresses, without gaps.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return read_alike(a, b) && a.is_non_overlapping_and_dense();
}

// Whether there is nothing to copy, even where the tensor has an element twice.
bool is_same_data(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
         read_alike(a, b);
}

void count(const Stream& stream, CopyKind kind, bool pinned, size_t bytes) {
  // Relaxed: statistics order nothing.
  segment()
      .devices[stream.device()]
      .copy_bytes[int(kind)][pinned ? 1 : 0]
      .fetch_add(bytes, std::memory_order_relaxed);
}

void copy_on_stream(Stream& stream, const at::Tensor& to,
                    const at::Tensor& from) {
  count(stream, CopyKind::kOnDevice, false, to.nbytes());
  if (same_layout(to, from)) {
    copy_bytes(stream, to.mutable_data_ptr(), from.const_data_ptr(),
               to.nbytes(), CopyKind::kOnDevice);
    return;
  }
  copy_by_kernel(to, from);
}

// Host memory whose owner was interrupted while waiting for a copy from or to
// it.
DeferredDelete<at::Tensor>& abandoned_memory() {
  static auto* const instance = new DeferredDelete<at::Tensor>;
  return *instance;
}

void abandon(const at::Tensor& on_host, Stream& stream) {
  std::unique_ptr<at::Tensor> kept(new (std::nothrow) at::Tensor(on_host));
  if (kept) {
    abandoned_memory().after({&stream, stream.tail()}, std::move(kept));
  } else {
    // As DeferredDelete keeps for ever what it cannot note.
    (void)at::Tensor(on_host).unsafeReleaseTensorImpl();
  }
}

// Queues a copy and waits for it, since it uses host memory that the owner may
// free afterwards.
void copy_and_wait(Stream& stream, void* to, const void* from,
                   const at::Tensor& on_host, CopyKind kind,
                   WaitReason reason) {
  announce_host_wait(stream, reason, kCopyName);
  try {
    copy_bytes(stream, to, from, on_host.nbytes(), kind);
    host_wait_announced(stream, stream.tail(), reason, kCopyName);
  } catch (...) {
    // The wait was interrupted: the caller goes on, and the queued copy still
    // uses the memory.
    abandon(on_host, stream);
    throw;
  }
  abandoned_memory().collect();
  raise_if_failed(stream);
}

// Copies across devices on the source's stream, which first waits for what the
// destination's stream has been given; afterwards the destination's stream
// waits for the copy.
void copy_between_devices(const at::Tensor& to, const at::Tensor& from) {
  Stream& source = usable_stream(from.device().index());
  Stream& target = usable_stream(to.device().index());
  count(source, CopyKind::kOnDevice, false, to.nbytes());
  at::Tensor packed = from;
  if (!same_layout(to, from)) {
    packed = make_tensor(source, to.sizes(),
                         to.is_non_overlapping_and_dense()
                             ? to.strides()
                             : from.contiguous().strides(),
                         to.dtype());
    copy_by_kernel(packed, from.expand_as(packed));
  }
  // Where `to` has gaps, the bytes are moved first, and then spread on the
  // other device.
  const bool direct = same_layout(to, packed);
  const at::Tensor landed = direct
                                ? to
                                : make_tensor(target, packed.sizes(),
                                              packed.strides(), packed.dtype());
  if (!source.wait_for(target, target.tail())) raise_stream_error(source);
  copy_bytes(source, landed.mutable_data_ptr(), packed.const_data_ptr(),
             packed.nbytes(), CopyKind::kOnDevice);
  if (!target.wait_for(source, source.tail())) raise_stream_error(target);
  if (!direct) copy_by_kernel(to, landed);
}

void copy_to_host(const at::Tensor& to, const at::Tensor& from,
                  bool non_blocking) {
  Stream& stream = usable_stream(from.device().index());
  if (non_blocking && is_pinned(to.const_data_ptr()) && same_layout(to, from)) {
    // Recorded before the copy is queued, so that the memory is kept until the
    // stream has reached it, whatever is thrown afterwards.
    record_pinned(to.storage().data_ptr(), stream);
    copy_bytes(stream, to.mutable_data_ptr(), from.const_data_ptr(),
               to.nbytes(), CopyKind::kDeviceToHost);
    count(stream, CopyKind::kDeviceToHost, true, to.nbytes());
    return;
  }
  forbid_wait(stream, "aten::copy_ from the device to the host",
              "a blocking copy waits for captured work, which does not run; "
              "copy with non_blocking=True into pinned memory");
  count(stream, CopyKind::kDeviceToHost, false, to.nbytes());
  if (stream.is_asynchronous() && same_layout(to, from)) {
    // The device copies with a thread, or an engine, of its own.
    about_to_use(stream, "aten::copy_", {{to, NPU_WRITE}});
    return copy_and_wait(stream, to.mutable_data_ptr(), from.const_data_ptr(),
                         to, CopyKind::kDeviceToHost, WaitReason::kCopy);
  }
  host_wait(stream, stream.tail(), WaitReason::kCopy, kCopyName);
  raise_if_failed(stream);
  about_to_use(stream, "aten::copy_", {{to, NPU_WRITE}, {from, NPU_READ}});
  KernelMode mode;
  RunsOnCaller profiled(stream, kDeviceToHostName);
  to.copy_(host_alias(from));
}

void copy_from_host(const at::Tensor& to, const at::Tensor& from,
                    bool non_blocking) {
  Stream& stream = usable_stream(to.device().index());
  // Pinned memory is read when the stream reaches the copy, however little it
  // is: an earlier copy may still be writing it.
  const bool later = non_blocking && is_pinned(from.const_data_ptr());
  if (!later && (!non_blocking || from.nbytes() <= kMaxInlineCopy))
    about_to_use(stream, "aten::copy_", {{from, NPU_READ}});
  // All ways below need one layout of the source: the destination's, without
  // gaps.
  at::Tensor laid_out;
  const bool alike = same_layout(to, from);
  if (!alike && to.is_non_overlapping_and_dense()) {
    // The source is read now, as on CUDA, whatever else is under way.
    if (later) about_to_use(stream, "aten::copy_", {{from, NPU_READ}});
    KernelMode mode;
    laid_out = at::empty_strided(to.sizes(), to.strides(),
                                 from.options().dtype(to.scalar_type()));
    laid_out.copy_(from);
  }
  const at::Tensor& source = laid_out.defined() ? laid_out : from;
  if (!alike && !same_layout(to, source)) {
    at::Tensor packed = make_contiguous(stream, to.sizes(), to.dtype());
    copy_from_host(packed, from.expand_as(packed), false);
    copy_by_kernel(to, packed);
    return;
  }
  const size_t bytes = source.nbytes();
  void* address = to.mutable_data_ptr();
  // A replay reads pinned memory again; small values from other memory become
  // constants of the graph.
  const bool direct = later && source.is_same(from);
  count(stream, CopyKind::kHostToDevice, direct, bytes);
  if (bytes <= kMaxInlineCopy && !direct) {
    copy_inline(stream, address, source.const_data_ptr(), bytes);
  } else if (direct) {
    record_pinned(source.storage().data_ptr(), stream);
    copy_bytes(stream, address, source.const_data_ptr(), bytes,
               CopyKind::kHostToDevice);
  } else if (stream.sink()) {
    forbid_on(stream,
              "aten::copy_ of " + std::to_string(bytes) +
                  " bytes from pageable host memory",
              "each replay would read that memory again; copy with "
              "non_blocking=True from pinned memory that you keep, or before "
              "the capture");
  } else if (bytes <= kMaxStagedCopy) {
    c10::DataPtr stage = pinned_allocator()->allocate(bytes);
    memcpy(stage.get(), source.const_data_ptr(), bytes);
    record_pinned(stage, stream);
    copy_bytes(stream, address, stage.get(), bytes, CopyKind::kHostToDevice);
  } else {
    copy_and_wait(stream, address, source.const_data_ptr(), source,
                  CopyKind::kHostToDevice, WaitReason::kUpload);
  }
}

// Raises in the words of the iterator that cpu copies use.
void check_broadcast(const at::Tensor& to, const at::Tensor& from) {
  const at::DimVector both = at::infer_size_dimvector(to.sizes(), from.sizes());
  TORCH_CHECK(to.sizes() == both, "output with shape ", to.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(both));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source,
                  bool non_blocking) {
  TORCH_CHECK(self.defined() && source.defined(),
              "copy_: both tensors must be defined");
  if (self.is_same(source)) return self;
  if (self.numel() != 0) {
    const bool may_overlap = self.device() == source.device();
    if (may_overlap && is_same_data(self, source)) return self;
    at::assert_no_internal_overlap(self);
    if (may_overlap) at::assert_no_partial_overlap(self, source);
  }
  if (self.sizes() != source.sizes()) check_broadcast(self, source);
  if (source._is_zerotensor()) return self.zero_();  // it has no memory
  check_storage(kCopyName, "argument 'self'", self);
  check_storage(kCopyName, "argument 'src'", source);
  if (!is_npu(source) && !source.device().is_cpu()) {
    TORCH_CHECK(!source.is_meta(), "Cannot copy out of meta tensor; no data!");
    copy_from_host(self, source.to(at::kCPU).expand_as(self), false);
    return self;
  }
  if (self.numel() == 0) return self;
  const auto expanded = source.sizes() == self.sizes()
                            ? Maybe::borrowed(source)
                            : Maybe::owned(source.expand_as(self));
  const at::Tensor& from = *expanded;
  if (!is_npu(self)) {
    copy_to_host(self, from, non_blocking);
  } else if (!is_npu(from)) {
    if (!non_blocking && host_waits_are_watched() &&
        self.nbytes() <= kMaxStagedCopy)
      tell_staged_copy(usable_stream(self.device().index()), kCopyName);
    copy_from_host(self, from, non_blocking);
  } else if (self.device() != from.device()) {
    copy_between_devices(self, from);
  } else {
    copy_on_stream(usable_stream(self.device().index()), self, from);
  }
  return self;
}

// The kernel at autograd's key (unrecorded.h).
at::Tensor& unrecorded_copy_(c10::DispatchKeySet keys, at::Tensor& self,
                             const at::Tensor& source, bool non_blocking) {
  if (!is_unrecorded(keys, self, source) || !counts_versions(self))
    return at::_ops::copy_::redispatch(recorded_keys(keys), self, source,
                                       non_blocking);
  const at::AutoDispatchBelowADInplaceOrView below;
  copy_(self, source, non_blocking);
  note_write(self);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to,
                     bool non_blocking) {
  at::Tensor target = to;
  copy_(target, self, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  at::Tensor target = to;
  target.resize_(self.sizes());
  return copy_from(self, target, false);
}

// Waits for what an operator that returns a value reads. `told`: its name, with
// what users call.
inline Stream& wait_to_read(const char* op, const char* told,
                            const at::Tensor& self,
                            std::initializer_list<HostUse> uses) {
  check_storage(op, "argument 'self'", self);
  Stream& stream = usable_stream(self.device().index());
  forbid_wait(stream, told,
              "a value on the host would be that of the capture, not of the "
              "replays; keep it in a tensor, or read it outside the capture");
  host_wait(stream, stream.tail(), WaitReason::kItem, op);
  raise_if_failed(stream);
  about_to_use(stream, op, uses);
  return stream;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  Stream& stream =
      wait_to_read("aten::_local_scalar_dense",
                   "aten::_local_scalar_dense (item(), bool(), float())", self,
                   {{self, NPU_READ}});
  KernelMode mode;
  RunsOnCaller profiled(stream, kDeviceToHostName);
  return at::_local_scalar_dense(host_alias(self));
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              self.device(), " and ", other.device(), "!");
  check_storage("aten::equal", "argument 'other'", other);
  Stream& stream = wait_to_read("aten::equal", "aten::equal", self,
                                {{self, NPU_READ}, {other, NPU_READ}});
  KernelMode mode;
  RunsOnCaller profiled(stream, "aten::equal");
  return host_alias(self).equal(host_alias(other));
}

void record_stream_op(at::Tensor& self, at::Stream stream) {
  record_stream(self.storage().data_ptr(), from_torch(stream));
}

NPU_KERNELS(PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("equal", TORCH_FN(equal));
  m.impl("record_stream", TORCH_FN(record_stream_op));
}

NPU_KERNELS(AutogradPrivateUse1, m) {
  m.impl("copy_", TORCH_FN(unrecorded_copy_));
}

}  // namespace
}  // namespace npu
