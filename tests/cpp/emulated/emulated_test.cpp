// An emulated device: its specification, and the model, which is told the time
// (what kernels cost: tests/plan/test_emulated.py); and what the driver's table
// promises beyond tests/cpp/driver, each case in a process of its own, because
// NPU_EMULATED is read once.
#include "csrc/driver/driver.h"
#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "tests/cpp/check.h"
#include "tests/cpp/system.h"

namespace npu {
namespace {

using Engine = DeviceModel::Engine;
using Queue = DeviceModel::Queue;

void submit(DeviceModel& model, Queue& queue, uint64_t ready, uint64_t overhead,
            uint64_t work, Engine engine = Engine::kCompute) {
  model.submit(queue, {1, engine, ready, overhead, work});
}

// Start and end of what has begun.
using Times = std::vector<std::pair<uint64_t, uint64_t>>;
Times times(const Queue& queue) {
  Times all;
  for (const auto& task : queue.begun) all.push_back({task.start, task.end});
  return all;
}

TEST(DeviceModel, StartsInOrderAndWhenReady) {
  DeviceModel model(4, 1);
  auto& queue = *model.add(0);
  submit(model, queue, 100, 10, 50);
  submit(model, queue, 100, 10, 20);
  submit(model, queue, 500, 10, 20);
  EXPECT_EQ(queue.expected_end(), 530u);
  model.advance(1000);
  EXPECT_EQ(times(queue), Times({{100, 160}, {160, 190}, {500, 530}}));
}

TEST(DeviceModel, OverlapsWhatSurroundsKernelsAndNotTheirWork) {
  DeviceModel model(2, 1);
  auto &a = *model.add(0), &b = *model.add(0), &c = *model.add(0);
  for (Queue* queue : {&a, &b, &c}) submit(model, *queue, 0, 10, 100);
  model.advance(1000);
  EXPECT_EQ(times(a), Times({{0, 110}}));
  EXPECT_EQ(times(b), Times({{0, 210}}));
  EXPECT_EQ(times(c), Times({{110, 310}}));  // there is no third slot
}

TEST(DeviceModel, GivesEachQueueItsTurn) {
  DeviceModel model(1, 1);
  auto &deep = *model.add(0), &late = *model.add(0);
  for (int i = 0; i < 10; ++i) submit(model, deep, 0, 0, 100);
  model.advance(150);
  submit(model, late, 150, 0, 100);
  model.advance(2000);
  EXPECT_TRUE(late.begun[0].end <= 400u);
  EXPECT_EQ(deep.begun.back().end, 1100u);
}

TEST(DeviceModel, PrefersTheMoreUrgentOfTwo) {
  DeviceModel model(1, 1);
  auto &normal = *model.add(0), &urgent = *model.add(-1);
  for (Queue* queue : {&normal, &urgent}) submit(model, *queue, 0, 0, 100);
  model.advance(1000);
  EXPECT_EQ(urgent.begun[0].start, 0u);
  EXPECT_EQ(normal.begun[0].start, 100u);
}

TEST(DeviceModel, CopiesBesideKernelsAndOneToAnEngine) {
  DeviceModel model(1, 1);
  auto &a = *model.add(0), &b = *model.add(0), &kernels = *model.add(0);
  for (Queue* queue : {&a, &b}) submit(model, *queue, 0, 5, 100, Engine::kCopy);
  submit(model, kernels, 0, 0, 70);
  model.advance(1000);
  EXPECT_EQ(a.begun[0].end, 105u);
  EXPECT_EQ(b.begun[0].end, 210u);
  EXPECT_EQ(kernels.begun[0].end, 70u);
}

// A stop gives back the slot and the units of what had begun.
TEST(DeviceModel, GivesBackWhatAQueueHadWhenItIsReset) {
  for (const Engine engine : {Engine::kCompute, Engine::kCopy}) {
    DeviceModel model(1, 1);
    auto &stopped = *model.add(0), &other = *model.add(0);
    for (int i = 0; i < 2; ++i) submit(model, stopped, 0, 5, 1'000'000, engine);
    model.advance(100);
    model.reset(stopped, 100);
    submit(model, other, 100, 10, 50, engine);
    model.advance(1'000);
    EXPECT_EQ(times(other), Times({{100, 160}}));
  }
}

// Whichever is stopped first: the work of the second had waited for the
// first's.
TEST(DeviceModel, GivesBackWhatTwoQueuesHadWhenBothAreReset) {
  for (const bool in_order : {true, false}) {
    DeviceModel model(2, 1);
    auto &a = *model.add(0), &b = *model.add(0), &other = *model.add(0);
    for (Queue* queue : {&a, &b}) submit(model, *queue, 0, 5, 1'000'000);
    model.advance(100);
    model.reset(in_order ? a : b, 100);
    model.reset(in_order ? b : a, 100);
    submit(model, other, 100, 10, 50);
    model.advance(1'000);
    EXPECT_EQ(times(other), Times({{100, 160}}));
  }
}

TEST(DeviceModel, KeepsTheTimesOfAQueueThatIsNotReset) {
  DeviceModel model(3, 1);
  auto &stopped = *model.add(0), &kept = *model.add(0), &later = *model.add(0);
  for (Queue* queue : {&stopped, &kept}) submit(model, *queue, 0, 0, 100);
  model.advance(10);
  model.reset(stopped, 10);
  submit(model, later, 10, 0, 100);
  model.advance(1'000);
  EXPECT_EQ(kept.begun[0].end, 200u);
  EXPECT_EQ(later.begun[0].end, 300u);
}

TEST(DeviceModel, BeginsNothingThatMayStillBeOvertaken) {
  DeviceModel model(1, 1);
  auto& queue = *model.add(0);
  submit(model, queue, 200, 0, 10);
  model.advance(100);
  EXPECT_TRUE(queue.begun.empty());
  EXPECT_EQ(model.next_end(queue), 210u);
  model.reset(queue, 100);
  EXPECT_EQ(model.next_end(queue), 0u);
}

std::string fault(const char* text) {
  return thrown([&] { parse_emulated_spec(text); });
}

TEST(EmulatedSpec, TakesWhatIsGiven) {
  const EmulatedSpec spec =
      parse_emulated_spec("fp32=19.5e3;convolution=0.5\ncopy_engines=3");
  EXPECT_EQ(spec.fp32, 19500.0);
  EXPECT_EQ(spec.copy_engines, 3);
  EXPECT_EQ(spec.of_peak[size_t(Arithmetic::kConvolution)], 0.5);
  EXPECT_EQ(spec.flops_of(4), 19500.0);
  EXPECT_EQ(spec.flops_of(2), spec.fp16);
}

TEST(EmulatedSpec, NamesKeyFoundAndExpected) {
  for (const auto& [text, says] :
       {std::pair{"fp32=fast", "fp32='fast': expected a number above"},
        {"link=0", "link='0'"},
        {"launch_ns=-1", "not below 0"},
        {"concurrency=1.5", "whole number"},
        {"overcommit=2", "0 or 1"},
        {"speed=1", "speed"},
        {"compute=real", "a key that npu_dispatch knows"},
        {"speed", "key=value"}})
    EXPECT_CONTAINS(fault(text), says);
  EXPECT_EQ(fault("launch_ns=0"), "");
}

// Whether the body returns true.
template <typename Body>
bool with(const char* spec, Body body) {
  return in_child([&] {
           setenv("NPU_EMULATED", spec, 1);
           return int(body(emulated_driver()));
         }).code == 1;
}

struct Reports {
  std::atomic<uint64_t> last{0};
  npu_reports table{&last,
                    [](void* last, uint64_t number) {
                      static_cast<std::atomic<uint64_t>*>(last)->store(
                          number, std::memory_order_release);
                    },
                    nullptr, nullptr};
};

TEST(EmulatedDriver, ASegmentOfAnotherProcessIsNotCountedWhenItIsFreed) {
  const bool refused = with("memory=1e6", [](const npu_driver& d) {
    constexpr size_t kBytes = 800'000;
    void* const other = host_driver().segment_alloc(0, kBytes);
    const int handle = host_driver().segment_share(0, other, kBytes);
    void* const opened = d.segment_open(0, handle, kBytes);
    void* const own = d.segment_alloc(0, kBytes);
    if (!opened || !own) return false;
    d.segment_free(0, opened, kBytes);
    return d.segment_alloc(0, kBytes) == nullptr;
  });
  EXPECT_TRUE(refused);
}

TEST(EmulatedDriver, KnowsTheTimesOfAsManyTasksAsItTakes) {
  const bool known = with("queue_room=65536", [](const npu_driver& d) {
    constexpr uint64_t kTasks = 10'000;
    Reports reports;
    const npu_queue queue = d.queue_create(0, 0, &reports.table);
    const npu_kernel sleep{nullptr, "npu::_sleep", nullptr, 0};
    const uint64_t first = 100'000'000, others = 0;  // ns
    for (uint64_t i = 1; i <= kTasks; ++i)
      if (d.submit(queue, i, &sleep, i == 1 ? &first : &others, nullptr))
        return false;
    while (reports.last.load(std::memory_order_acquire) < kTasks) {
    }
    uint64_t begun, ended;
    return d.task_times(queue, 1, &begun, &ended) && ended - begun >= first;
  });
  EXPECT_TRUE(known);
}

TEST(EmulatedDriver, HasNoQueueWhereThereIsNoThreadForIt) {
  const bool null = with("", [](const npu_driver& d) {
    Reports reports;
    {
      const check::NoThreads none;
      if (d.queue_create(0, 0, &reports.table)) return false;
    }
    return d.queue_create(0, 0, &reports.table) != nullptr;
  });
  EXPECT_TRUE(null);
}

}  // namespace
}  // namespace npu
