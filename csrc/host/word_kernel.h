// Kernels of generated code. Their tasks consist of words and own nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "csrc/driver/driver.h"
#include "csrc/host/kernel_threads.h"

namespace npu {

class Stream;

// Memory that such a kernel touches; npu_word_buffer of the C interface.
struct WordBuffer {
  uint32_t word;  // the word with its address
  uint32_t itemsize;
  uint8_t access;  // NPU_READ | NPU_WRITE
  // Where the extent is the same in every task: sizes and strides.
  std::vector<int64_t> sizes, strides;
  // Else not 0: the word with the number of elements from the address on.
  uint32_t length_word = 0;
};

class WordKernel : public npu_kernel {
 public:
  // Returns an npu_code; unless it is NPU_OK, writes NPU_MAX_ERROR_TEXT bytes
  // at most to `error`. Must not throw.
  using Entry = int (*)(const uint64_t* words, char* error);

  WordKernel(std::string_view name, Entry entry, uint32_t n_words,
             const std::vector<WordBuffer>& buffers, KernelSize size);
  WordKernel(const WordKernel&) = delete;

  uint32_t n_words() const { return n_words_; }

  // Queues the kernel with a copy of `words`, of which there are n_words(), and
  // the number of threads of the launch.
  // False when the stream has failed. Throws what a submission throws.
  bool submit(Stream& stream, const uint64_t* words) const;

 private:
  static int run(const npu_kernel* kernel, const uint64_t* words,
                 npu_failure* failure);

  const Entry entry_;
  const uint32_t n_words_;
  const KernelSize size_;
  std::vector<int64_t> extents_;
  std::vector<npu_view> views_;
};

}  // namespace npu
