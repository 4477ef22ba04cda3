#include "csrc/distributed/checks.h"

#include <ATen/ops/from_blob.h>

#include "csrc/torch/device.h"
#include "csrc/torch/storage_end.h"
#include "csrc/torch/tensor.h"

namespace npu {

void check_tensor(const char* call, const at::Tensor& t, int device) {
  TORCH_CHECK(t.defined(), "hccl: ", call, " was given no tensor");
  TORCH_CHECK_TYPE(t.layout() == at::kStrided, "hccl: ", call,
                   " needs a dense tensor, got layout ", t.layout());
  TORCH_CHECK_VALUE(is_npu(t), "hccl: ", call,
                    " needs an npu tensor, got one on ", t.device(),
                    "; move it with .npu(), or name a backend for both, "
                    "init_process_group(\"cpu:gloo,npu:hccl\")");
  TORCH_CHECK_VALUE(t.get_device() == device, "hccl: ", call,
                    " got tensors on npu:", device, " and on ", t.device());
  TORCH_CHECK_VALUE(t.is_contiguous(t.suggest_memory_format()), "hccl: ", call,
                    " needs a contiguous tensor, got sizes ", t.sizes(),
                    " with strides ", t.strides(), "; pass .contiguous()");
  TORCH_CHECK_VALUE(!t.is_conj() && !t.is_neg(), "hccl: ", call,
                    " needs a tensor that is not conjugated or negated lazily; "
                    "pass .resolve_conj().resolve_neg()");
  if (ends_beyond_storage(t))
    raise_beyond_storage(std::string("hccl: ") + call, "a tensor", t);
}

void check_dtypes(const char* call, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& t : tensors)
    TORCH_CHECK_TYPE(t.scalar_type() == tensors[0].scalar_type(),
                     "hccl: ", call, " got tensors of ",
                     tensors[0].scalar_type(), " and of ", t.scalar_type());
}

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& list) {
  TORCH_CHECK_VALUE(list.size() == 1, "hccl: ", call, " takes one tensor, got ",
                    list.size());
  return list[0];
}

void check_root(const char* call, int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "hccl: ", call, ": rank ", root,
                    " is not one of the group's ", size);
}

uint8_t memory_formats(const at::Tensor& t) {
  const auto bit = [&](uint8_t format, bool has) {
    return uint8_t(has ? format : 0);
  };
  return bit(kContiguous, t.is_contiguous()) |
         bit(kChannelsLast,
             t.dim() == 4 && t.is_contiguous(at::MemoryFormat::ChannelsLast)) |
         bit(kChannelsLast3d,
             t.dim() == 5 && t.is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

at::Tensor host_elements(const at::Tensor& t, bool writes) {
  void* data =
      writes ? t.mutable_data_ptr() : const_cast<void*>(t.const_data_ptr());
  return at::from_blob(data, {t.numel()}, at::dtype(t.scalar_type()));
}

}  // namespace npu
