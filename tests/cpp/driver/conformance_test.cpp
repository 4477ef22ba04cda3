// What every driver must do, on the one that NPU_DRIVER names.
#include <stdlib.h>
#include <string.h>

#include "csrc/driver/driver.h"
#include "csrc/driver/registry.h"
#include "tests/cpp/check.h"
#include "tests/cpp/child.h"

namespace npu {
namespace {

TEST(Driver, IsCompleteAndOfThisAbi) {
  const npu_driver& d = driver();
  EXPECT_EQ(d.abi, NPU_DRIVER_ABI);
  EXPECT_EQ(d.size, sizeof(npu_driver));
  EXPECT_TRUE(d.name && *d.name);
  EXPECT_TRUE(d.device_count && d.memory_total);
  EXPECT_TRUE(d.segment_alloc && d.segment_free);
  EXPECT_TRUE(d.queue_create && d.queue_destroy && d.launch);
}

TEST(Driver, IsFoundUnderItsName) {
  EXPECT_TRUE(find_driver(driver().name) == &driver());
  EXPECT_TRUE(find_driver("no such driver") == nullptr);
}

TEST(Driver, HasAConstantNumberOfDevicesWithMemory) {
  const int count = driver().device_count();
  EXPECT_TRUE(count >= 1);
  EXPECT_EQ(driver().device_count(), count);
  for (int device = 0; device < count; ++device)
    EXPECT_TRUE(driver().memory_total(device) > 0);
}

TEST(Driver, GivesWritableAlignedSegmentsThatDoNotOverlap) {
  for (size_t bytes : {size_t{512}, size_t{1} << 16, size_t{20} << 20}) {
    char* a = static_cast<char*>(driver().segment_alloc(0, bytes));
    char* b = static_cast<char*>(driver().segment_alloc(0, bytes));
    EXPECT_TRUE(a && b);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 512, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 512, 0);
    EXPECT_TRUE(a + bytes <= b || b + bytes <= a);
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    EXPECT_EQ(a[bytes - 1], 1);
    driver().segment_free(0, a, bytes);
    driver().segment_free(0, b, bytes);
  }
}

TEST(Driver, ReturnsNullWhenThereIsNoMemoryLeft) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // the sanitizers abort on such a size instead
#endif
  EXPECT_TRUE(driver().segment_alloc(0, size_t{1} << 60) == nullptr);
}

TEST(Driver, CreatesQueuesOfEitherPriority) {
  for (int priority : {-1, 0}) {
    npu_queue queue = driver().queue_create(0, priority);
    EXPECT_TRUE(queue != nullptr);
    driver().queue_destroy(queue);
  }
}

int run_twice(const npu_kernel* kernel, const uint64_t* words, npu_failure*) {
  EXPECT_EQ(kernel->n_views, 0);
  *reinterpret_cast<uint64_t*>(words[0]) = 2 * words[1];
  return NPU_OK;
}
int run_failure(const npu_kernel*, const uint64_t*, npu_failure* failure) {
  strcpy(failure->text, "on purpose");
  return failure->code = NPU_VALUE_ERROR;
}

// The null driver accepts work and does none of it.
bool runs_kernels() { return strcmp(driver().name, "null") != 0; }

TEST(Driver, RunsAKernelOnItsWords) {
  const npu_kernel kernel{run_twice, "test::twice", nullptr, 0};
  npu_queue queue = driver().queue_create(0, 0);
  uint64_t result = 0;
  const uint64_t words[] = {reinterpret_cast<uint64_t>(&result), 21};
  npu_failure failure;

  EXPECT_EQ(driver().launch(queue, &kernel, words, &failure), int(NPU_OK));
  if (driver().launch_completes) EXPECT_EQ(result, runs_kernels() ? 42 : 0);
  driver().queue_destroy(queue);
}

TEST(Driver, PassesOnAKernelsFailure) {
  if (!runs_kernels()) return;
  const npu_kernel kernel{run_failure, "test::failure", nullptr, 0};
  npu_queue queue = driver().queue_create(0, 0);
  npu_failure failure;

  EXPECT_EQ(driver().launch(queue, &kernel, nullptr, &failure),
            int(NPU_VALUE_ERROR));
  EXPECT_EQ(strcmp(failure.text, "on purpose"), 0);
  driver().queue_destroy(queue);
}

}  // namespace
}  // namespace npu
