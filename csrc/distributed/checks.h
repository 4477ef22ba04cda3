// What is refused at the call of a collective: on a launcher an error would
// fail the stream, and the other ranks would wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu {

// npu, strided, dense, of the group's device; throws otherwise.
void check_tensor(const char* call, const at::Tensor& t, int device);

// All of one dtype.
void check_dtypes(const char* call, const std::vector<at::Tensor>& tensors);

// One tensor, as the calls of a process group pass it.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& list);

void check_root(const char* call, int64_t root, int size);

// A host tensor of one dimension over the same elements, without waiting.
at::Tensor host_elements(const at::Tensor& t, bool writes);

}  // namespace npu
