// Tests what every driver must do, on the driver that NPU_DRIVER names.
#include <condition_variable>

#include "csrc/driver/driver.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

// What a queue has reported.
class Reports {
 public:
  const npu_reports& table() const { return table_; }

  // Waits until `number` or a failure is reported; returns the number that
  // failed, or 0.
  uint64_t wait_for(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number || failed_; });
    return failed_;
  }
  npu_failure failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  uint64_t done() {
    std::lock_guard lock(mutex_);
    return done_;
  }
  void forget_failure() { failed_ = 0; }

 private:
  static Reports& of(void* self) { return *static_cast<Reports*>(self); }

  void report(uint64_t done, uint64_t failed, const npu_failure* failure) {
    std::lock_guard lock(mutex_);
    if (done) {
      EXPECT_TRUE(done > done_);
      done_ = done;
    }
    if (failed) {
      failed_ = failed;
      failure_ = *failure;
    }
    changed_.notify_all();
  }

  const npu_reports table_{
      this,
      [](void* self, uint64_t number) { of(self).report(number, 0, nullptr); },
      [](void* self, uint64_t number, const npu_failure* failure) {
        of(self).report(0, number, failure);
      },
      [](void*) {},
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t done_ = 0, failed_ = 0;
  npu_failure failure_{};
};

// A queue of the driver, whether that has launch or submit.
class Queue {
 public:
  explicit Queue(int priority = 0)
      : queue_(driver().queue_create(
            0, priority, driver().submit ? &reports_.table() : nullptr)) {}
  ~Queue() { driver().queue_destroy(queue_); }

  bool there() const { return queue_; }
  Reports& reports() { return reports_; }

  // Submits a task, again and again while the driver is busy; returns its
  // number.
  uint64_t submit(const npu_kernel& kernel, const uint64_t* words) {
    npu_failure failure;
    int code;
    while ((code = driver().submit(queue_, last_ + 1, &kernel, words,
                                   &failure)) == NPU_BUSY) {
    }
    EXPECT_EQ(code, int(NPU_OK));
    return ++last_;
  }
  void reset() {
    driver().queue_reset(queue_);
    reports_.forget_failure();
  }

  // Runs a task, waits for it and returns its outcome.
  int run(const npu_kernel& kernel, const uint64_t* words, std::string& text) {
    if (driver().launch) {
      npu_failure failure;
      const int code = driver().launch(queue_, &kernel, words, &failure);
      text = code ? failure.text : "";
      return code;
    }
    if (!reports_.wait_for(submit(kernel, words))) return NPU_OK;
    text = reports_.failure().text;
    return reports_.failure().code;
  }

 private:
  Reports reports_;
  npu_queue queue_;
  uint64_t last_ = 0;
};

TEST(Driver, IsCompleteAndOfThisVersion) { EXPECT_EQ(fault_of(driver()), ""); }

TEST(Driver, OfAnIncompleteTableIsRefusedWithTheNameOfWhatIsMissing) {
  const npu_driver& whole = *find_driver("null");
  EXPECT_EQ(fault_of(whole), "");
  const auto submit = [](npu_queue, uint64_t, const npu_kernel*,
                         const uint64_t*, npu_failure*) { return 0; };
  const std::pair<const char*, std::function<void(npu_driver&)>> cases[] = {
      {"version 1", [](auto& t) { t.abi = 1; }},
      {"lacks name", [](auto& t) { t.name = ""; }},
      {"segment_free", [](auto& t) { t.segment_free = nullptr; }},
      {"neither", [](auto& t) { t.launch = nullptr; }},
      {"65 devices",
       [](auto& t) { t.device_count = [] { return kMaxDevices + 1; }; }},
      {"-1", [](auto& t) { t.device_count = [] { return -1; }; }},
      {"both", [&](auto& t) { t.submit = submit; }},
      {"queue_reset",
       [&](auto& t) {
         t.launch = nullptr;
         t.submit = submit;
       }},
      // Members beyond the size that a table states are not there.
      {"neither", [](auto& t) { t.size = offsetof(npu_driver, launch); }}};
  for (const auto& [says, change] : cases) {
    npu_driver table = whole;
    change(table);
    EXPECT_CONTAINS(fault_of(table), says);
  }
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
  for (int priority : {-1, 0}) EXPECT_TRUE(Queue(priority).there());
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

// Some drivers take tasks and compute none of them.
bool runs_kernels() {
  return driver().name != std::string("null") &&
         driver().name != std::string("emulated");
}

TEST(Driver, RunsAKernelOnItsWords) {
  const npu_kernel kernel{run_twice, "test::twice", nullptr, 0};
  uint64_t result = 0;
  const uint64_t words[] = {reinterpret_cast<uint64_t>(&result), 21};
  std::string text;

  EXPECT_EQ(Queue().run(kernel, words, text), int(NPU_OK));
  EXPECT_EQ(result, runs_kernels() ? 42 : 0);
}

TEST(Driver, PassesOnAKernelsFailure) {
  if (!runs_kernels()) return;
  const npu_kernel kernel{run_failure, "test::failure", nullptr, 0};
  std::string text;

  EXPECT_EQ(Queue().run(kernel, nullptr, text), int(NPU_VALUE_ERROR));
  EXPECT_TRUE(text == "on purpose");
}

int run_next(const npu_kernel*, const uint64_t* words, npu_failure*) {
  auto& last = *reinterpret_cast<uint64_t*>(words[0]);
  if (last + 1 == words[1]) last = words[1];
  return NPU_OK;
}
const npu_kernel kNext{run_next, "test::next", nullptr, 0};

TEST(Driver, RunsAQueueInOrderAndReportsTheLast) {
  if (!driver().submit) return;
  constexpr uint64_t kTasks = 1000;
  uint64_t last = 0;
  std::vector<std::array<uint64_t, 2>> words(kTasks);
  Queue queue;
  for (uint64_t i = 0; i < kTasks; ++i) {
    words[i] = {reinterpret_cast<uint64_t>(&last), i + 1};
    queue.submit(kNext, words[i].data());
  }
  EXPECT_EQ(queue.reports().wait_for(kTasks), 0u);
  EXPECT_EQ(last, runs_kernels() ? kTasks : 0);
}

TEST(Driver, RunsNothingBehindAFailureUntilItIsReset) {
  if (!driver().submit || !runs_kernels()) return;
  const npu_kernel fails{run_failure, "test::failure", nullptr, 0};
  uint64_t last = 0;
  const uint64_t one[] = {reinterpret_cast<uint64_t>(&last), 1};
  const uint64_t two[] = {reinterpret_cast<uint64_t>(&last), 2};
  Queue queue;
  queue.submit(kNext, one);
  const uint64_t failing = queue.submit(fails, nullptr);
  const uint64_t behind = queue.submit(kNext, two);

  EXPECT_EQ(queue.reports().wait_for(behind), failing);
  EXPECT_EQ(queue.reports().failure().code, int(NPU_VALUE_ERROR));
  queue.reset();
  EXPECT_EQ(last, 1u);
  EXPECT_TRUE(queue.reports().done() < failing);

  EXPECT_EQ(queue.reports().wait_for(queue.submit(kNext, two)), 0u);
  EXPECT_EQ(last, 2u);
}

}  // namespace
}  // namespace npu
