// Refuses wrong arguments at the call of a collective. Found on a launcher,
// they would fail the stream, and the other ranks would wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu {

// Throws unless the tensor is strided, dense and on npu device `device`.
void check_tensor(const char* call, const at::Tensor& t, int device);

// Throws unless all tensors have one dtype.
void check_dtypes(const char* call, const std::vector<at::Tensor>& tensors);

// The one tensor of a list, in which the calls of a process group pass it;
// throws where there are more or none.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& list);

void check_root(const char* call, int64_t root, int size);

// The memory formats in which the tensor's bytes are in order: a set of bits.
// In a small tensor one order may be that of several.
enum MemoryFormats : uint8_t {
  kContiguous = 1,
  kChannelsLast = 2,
  kChannelsLast3d = 4
};
uint8_t memory_formats(const at::Tensor& t);

// A host tensor of one dimension over the same elements. Does not wait.
at::Tensor host_elements(const at::Tensor& t, bool writes);

}  // namespace npu
