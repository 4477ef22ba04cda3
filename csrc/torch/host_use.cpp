#include "csrc/torch/host_use.h"

#include <vector>

namespace npu {

void tell_host_use(Stream& stream, const char* op, at::ArrayRef<HostUse> uses) {
  std::vector<npu_view> views;
  std::vector<uint64_t> words;
  for (const HostUse& use : uses) {
    const at::Tensor& t = use.tensor;
    if (!t.defined() || t.numel() == 0 || !t.has_storage()) continue;
    views.push_back({t.sizes().data(), t.strides().data(), uint32_t(t.dim()),
                     uint32_t(t.itemsize()), uint32_t(words.size()),
                     use.access});
    words.push_back(reinterpret_cast<uint64_t>(t.const_data_ptr()));
  }
  const npu_kernel kernel{nullptr, op, views.data(), uint32_t(views.size())};
  tell_observers(&Observer::host_uses, stream, kernel, words.data());
}

}  // namespace npu
