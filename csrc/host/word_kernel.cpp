#include "csrc/host/word_kernel.h"

#include <algorithm>

#include "csrc/driver/driver.h"
#include "csrc/interop/foreign.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

WordKernel::WordKernel(std::string_view name, Entry entry, uint32_t n_words,
                       const std::vector<WordBuffer>& buffers, KernelSize size)
    : entry_(entry), n_words_(n_words), size_(size) {
  for (const WordBuffer& b : buffers) {
    extents_.insert(extents_.end(), b.sizes.begin(), b.sizes.end());
    extents_.insert(extents_.end(), b.strides.begin(), b.strides.end());
  }
  const int64_t* at = extents_.data();
  for (const WordBuffer& b : buffers) {
    npu_view view{nullptr,    nullptr, b.length_word,
                  b.itemsize, b.word,  b.access};
    if (!b.length_word) {
      view.ndim = uint32_t(b.sizes.size());
      view.sizes = at;
      view.strides = at + view.ndim;
      at += 2 * view.ndim;
    }
    views_.push_back(view);
  }
  static_cast<npu_kernel&>(*this) = {&WordKernel::run, intern_name(name),
                                     views_.data(), uint32_t(views_.size())};
}

int WordKernel::run(const npu_kernel* kernel, const uint64_t* words,
                    npu_failure* failure) {
  const WordKernel& self = *static_cast<const WordKernel*>(kernel);
  KernelSize size = self.size_;
  if (size == KernelSize::kLarge) {
    // Where all extents are the same in every task, the maker of the kernel has
    // decided. Else the largest extent of this task decides, as in an
    // operator's plan.
    bool depends = false, large = false;
    for (const npu_view& view : self.views_) {
      if (!is_range(view)) continue;
      depends = true;
      large = large || int64_t(words[view.ndim]) > kSmallLoop;
    }
    if (depends && !large) size = KernelSize::kSmall;
  }
  use_threads_for(size, int(words[self.n_words_]));
  return failure->code = self.entry_(words, failure->text);
}

bool WordKernel::submit(Stream& stream, const uint64_t* words) const {
  Submission s;
  if (!stream.begin(n_words_ + 1, s, call_site())) return false;
  s.task->kernel = this;
  std::copy_n(words, n_words_, s.words);
  s.words[n_words_] = uint64_t(launch_threads());
  stream.commit(s);
  stream.after_commit(s);
  return true;
}

}  // namespace npu
