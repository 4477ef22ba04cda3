#include "csrc/host/result_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <vector>

#include "csrc/base/per_thread.h"
#include "csrc/host/scratch_memory.h"

namespace npu {
namespace {

// Below this size malloc() keeps the memory itself, and the copy is short.
constexpr size_t kLarge = kLeastScratch;

struct Offer {
  void* memory;
  size_t bytes;
  bool taken;
};

struct Offers {
  std::vector<Offer> list;

  void* take(size_t bytes) {
    for (Offer& offer : list) {
      if (offer.taken || offer.bytes != bytes) continue;
      offer.taken = true;
      return offer.memory;
    }
    return nullptr;
  }

  bool lists(const void* memory) const {
    for (const Offer& offer : list)
      if (offer.memory == memory) return true;
    return false;
  }
};
// Null outside of a ResultMemory. Other allocations only read this pointer.
thread_local Offers* current = nullptr;

void keep(void*) {}  // the memory belongs to the result

c10::Allocator* inner = nullptr;  // torch's own
// Whether `inner` allocates by malloc().
bool keeps_scratch = false;

// Memory that a kernel frees while it runs is kept; other memory is freed as
// usual.
void free_of_kernel(void* memory) {
  if (current && current->lists(memory)) return;  // belongs to a result
  if (keeps_scratch && RunsKernel::on_this_thread() && keep_scratch(memory))
    return;
  inner->raw_deallocate(memory);
}

class AskingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (current) [[unlikely]]
      if (void* memory = current->take(bytes))
        return {memory, memory, &keep, c10::Device(c10::kCPU)};
    if (bytes < kLeastScratch || !RunsKernel::on_this_thread()) [[likely]]
      return inner->allocate(bytes);
    void* memory = keeps_scratch ? take_scratch(bytes) : nullptr;
    if (!memory) memory = inner->raw_allocate(bytes);
    return {memory, memory, &free_of_kernel, c10::Device(c10::kCPU)};
  }
  // Outside of kernels it is the deleter that torch expects for its own memory.
  c10::DeleterFnPtr raw_deleter() const override {
    return RunsKernel::on_this_thread() ? &free_of_kernel
                                        : inner->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner->copy_data(to, from, bytes);
  }
};

}  // namespace

ResultMemory::ResultMemory(at::TensorList results) {
  Offers& offers = PerThread<Offers>::get();
  offers.list.clear();
  for (const at::Tensor& t : results)
    // Between the elements of a piece of a result (kernel_cut.h) lie others.
    if (t.defined() && t.nbytes() >= kLarge && t.is_non_overlapping_and_dense())
      offers.list.push_back({t.mutable_data_ptr(), t.nbytes(), false});
  if (!offers.list.empty()) current = &offers;
}

ResultMemory::~ResultMemory() { current = nullptr; }

void ResultMemory::install() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: storages keep a pointer to it.
    inner = c10::GetAllocator(c10::kCPU);
    keeps_scratch = inner == c10::GetDefaultCPUAllocator();
    c10::SetAllocator(c10::kCPU, new AskingAllocator);
  });
}

}  // namespace npu
