// What a graph consists of, for people to look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/graph/body.h"

namespace npu {

struct TensorInfo {
  std::vector<int64_t> sizes, strides;  // strides in elements
  uint32_t itemsize;                    // bytes
  bool read, written;
  uint64_t address;
};

struct NodeInfo {
  std::string op;
  int64_t stream;
  std::string line;  // "file.py:12", or ""
  uint64_t bytes;    // of its tensors, each counted without gaps
  std::vector<TensorInfo> tensors;
  std::vector<int> after;  // nodes that end before it starts
};

// The nodes, in the order of the capture.
std::vector<NodeInfo> describe(const Body& body);

}  // namespace npu
