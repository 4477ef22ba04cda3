// An emulated device: its specification, what kernels have to do by their names
// and shapes, what that costs, and the model, which is told the time.
#include <stdexcept>
#include <vector>

#include "csrc/driver/emulated/model.h"
#include "csrc/driver/emulated/spec.h"
#include "csrc/driver/emulated/work.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

using Engine = DeviceModel::Engine;

TEST(DeviceModel, StartsInOrderAndWhenReady) {
  DeviceModel model(4, 1);
  auto& queue = *model.add(0);
  model.submit(queue, {1, Engine::kCompute, 100, 10, 50});
  model.submit(queue, {2, Engine::kCompute, 100, 10, 20});
  model.submit(queue, {3, Engine::kCompute, 500, 10, 20});
  EXPECT_EQ(queue.expected_end(), 530u);
  model.advance(1000);
  EXPECT_EQ(queue.begun.size(), 3u);
  EXPECT_EQ(queue.begun[0].start, 100u);
  EXPECT_EQ(queue.begun[0].end, 160u);
  EXPECT_EQ(queue.begun[1].start, 160u);
  EXPECT_EQ(queue.begun[1].end, 190u);
  EXPECT_EQ(queue.begun[2].start, 500u);
  EXPECT_EQ(queue.begun[2].end, 530u);
}

TEST(DeviceModel, OverlapsWhatSurroundsKernelsAndNotTheirWork) {
  DeviceModel model(2, 1);
  auto &a = *model.add(0), &b = *model.add(0), &c = *model.add(0);
  model.submit(a, {1, Engine::kCompute, 0, 10, 100});
  model.submit(b, {1, Engine::kCompute, 0, 10, 100});
  model.submit(c, {1, Engine::kCompute, 0, 10, 100});  // no third slot
  model.advance(1000);
  EXPECT_EQ(a.begun[0].end, 110u);
  EXPECT_EQ(b.begun[0].end, 210u);
  EXPECT_EQ(c.begun[0].start, 110u);
  EXPECT_EQ(c.begun[0].end, 310u);
}

TEST(DeviceModel, GivesEachQueueItsTurn) {
  DeviceModel model(1, 1);
  auto &deep = *model.add(0), &late = *model.add(0);
  for (uint64_t i = 1; i <= 10; ++i)
    model.submit(deep, {i, Engine::kCompute, 0, 0, 100});
  model.advance(150);
  model.submit(late, {1, Engine::kCompute, 150, 0, 100});
  model.advance(2000);
  EXPECT_TRUE(late.begun[0].end <= 400u);
  EXPECT_EQ(deep.begun.back().end, 1100u);
}

TEST(DeviceModel, PrefersTheMoreUrgentOfTwo) {
  DeviceModel model(1, 1);
  auto &normal = *model.add(0), &urgent = *model.add(-1);
  model.submit(normal, {1, Engine::kCompute, 0, 0, 100});
  model.submit(urgent, {1, Engine::kCompute, 0, 0, 100});
  model.advance(1000);
  EXPECT_EQ(urgent.begun[0].start, 0u);
  EXPECT_EQ(normal.begun[0].start, 100u);
}

TEST(DeviceModel, CopiesBesideKernelsAndOneToAnEngine) {
  DeviceModel model(1, 1);
  auto &a = *model.add(0), &b = *model.add(0), &kernels = *model.add(0);
  model.submit(a, {1, Engine::kCopy, 0, 5, 100});
  model.submit(b, {1, Engine::kCopy, 0, 5, 100});
  model.submit(kernels, {1, Engine::kCompute, 0, 0, 70});
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
    model.submit(stopped, {1, engine, 0, 5, 1'000'000});
    model.submit(stopped, {2, engine, 0, 5, 1'000'000});
    model.advance(100);
    model.reset(stopped, 100);
    model.submit(other, {1, engine, 100, 10, 50});
    model.advance(1'000);
    EXPECT_EQ(other.begun.size(), 1u);
    EXPECT_EQ(other.begun[0].start, 100u);
    EXPECT_EQ(other.begun[0].end, 160u);
  }
}

// Whichever is stopped first: the work of the second had waited for the
// first's.
TEST(DeviceModel, GivesBackWhatTwoQueuesHadWhenBothAreReset) {
  for (const bool in_order : {true, false}) {
    DeviceModel model(2, 1);
    auto &a = *model.add(0), &b = *model.add(0), &other = *model.add(0);
    model.submit(a, {1, Engine::kCompute, 0, 5, 1'000'000});
    model.submit(b, {1, Engine::kCompute, 0, 5, 1'000'000});
    model.advance(100);
    model.reset(in_order ? a : b, 100);
    model.reset(in_order ? b : a, 100);
    model.submit(other, {1, Engine::kCompute, 100, 10, 50});
    model.advance(1'000);
    EXPECT_EQ(other.begun.size(), 1u);
    EXPECT_EQ(other.begun[0].end, 160u);
  }
}

TEST(DeviceModel, KeepsTheTimesOfAQueueThatIsNotReset) {
  DeviceModel model(3, 1);
  auto &stopped = *model.add(0), &kept = *model.add(0), &later = *model.add(0);
  model.submit(stopped, {1, Engine::kCompute, 0, 0, 100});
  model.submit(kept, {1, Engine::kCompute, 0, 0, 100});
  model.advance(10);
  model.reset(stopped, 10);
  model.submit(later, {1, Engine::kCompute, 10, 0, 100});
  model.advance(1'000);
  EXPECT_EQ(kept.begun[0].end, 200u);
  EXPECT_EQ(later.begun[0].end, 300u);
}

TEST(DeviceModel, BeginsNothingThatMayStillBeOvertaken) {
  DeviceModel model(1, 1);
  auto& queue = *model.add(0);
  model.submit(queue, {1, Engine::kCompute, 200, 0, 10});
  model.advance(100);
  EXPECT_TRUE(queue.begun.empty());
  EXPECT_EQ(model.next_end(queue), 210u);
  model.reset(queue, 100);
  EXPECT_EQ(model.next_end(queue), 0u);
}

std::string fault(const char* text) {
  try {
    parse_emulated_spec(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}
bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(EmulatedSpec, TakesWhatIsGiven) {
  const EmulatedSpec spec =
      parse_emulated_spec("fp32=19.5e3;gather=0.5\ncopy_engines=3");
  EXPECT_EQ(spec.fp32, 19500.0);
  EXPECT_EQ(spec.copy_engines, 3);
  EXPECT_EQ(spec.of_bandwidth[size_t(Traffic::kGather)], 0.5);
  EXPECT_EQ(spec.flops_of(4), 19500.0);
  EXPECT_EQ(spec.flops_of(2), spec.fp16);
}

TEST(EmulatedSpec, NamesKeyFoundAndExpected) {
  EXPECT_TRUE(has(fault("fp32=fast"), "fp32='fast': expected a number above"));
  EXPECT_TRUE(has(fault("link=0"), "link='0'"));
  EXPECT_TRUE(has(fault("launch_ns=-1"), "not below 0"));
  EXPECT_TRUE(has(fault("concurrency=1.5"), "whole number"));
  EXPECT_TRUE(has(fault("overcommit=2"), "0 or 1"));
  EXPECT_TRUE(has(fault("speed=1"), "speed"));
  EXPECT_TRUE(has(fault("compute=real"), "a key that npu_dispatch knows"));
  EXPECT_TRUE(has(fault("speed"), "key=value"));
  EXPECT_TRUE(fault("launch_ns=0").empty());
}

// A kernel whose last tensor is its result.
struct Kernel {
  struct Tensor {
    std::vector<int64_t> sizes, strides;
    uint16_t itemsize;
  };
  std::vector<Tensor> tensors;
  std::vector<npu_view> views;
  std::vector<uint64_t> words;

  TaskWork work(const char* name,
                const std::vector<std::vector<int64_t>>& shapes,
                const std::vector<int>& itemsizes) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor t{shapes[i], {}, uint16_t(itemsizes[i])};
      int64_t stride = 1;
      t.strides.resize(t.sizes.size());
      for (size_t d = t.sizes.size(); d-- > 0; stride *= t.sizes[d])
        t.strides[d] = stride;
      tensors.push_back(t);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool result = i + 1 == tensors.size();
      views.push_back({tensors[i].sizes.data(), tensors[i].strides.data(),
                       uint16_t(tensors[i].sizes.size()), tensors[i].itemsize,
                       uint16_t(i), uint8_t(result ? NPU_WRITE : NPU_READ)});
      words.push_back(0);
    }
    const npu_kernel kernel{nullptr, name, views.data(),
                            uint32_t(views.size())};
    return work_of_task(kernel, words.data());
  }
};

TEST(TaskWork, NarrowProductsAreMadeAtTheRateOfTheirInputs) {
  for (const char* name : {"aten::_scaled_mm", "aten::_int_mm"}) {
    const TaskWork w =
        Kernel().work(name, {{8, 16}, {16, 4}, {8, 4}}, {1, 1, 4});
    EXPECT_EQ(w.flops, 2.0 * 8 * 16 * 4);
    EXPECT_EQ(w.itemsize, 1);
  }
  EXPECT_EQ(
      Kernel().work("aten::mm", {{8, 16}, {16, 4}, {8, 4}}, {4, 4, 4}).itemsize,
      4);
}

TEST(TaskWork, AConvolutionInGroupsOfOneChannelIsDepthwise) {
  const auto of = [](std::vector<int64_t> weight) {
    return Kernel()
        .work("aten::convolution", {{1, 8, 6, 6}, weight, {1, 8, 4, 4}},
              {4, 4, 4})
        .arithmetic;
  };
  EXPECT_TRUE(of({8, 1, 3, 3}) == Arithmetic::kDepthwise);
  EXPECT_TRUE(of({8, 8, 3, 3}) == Arithmetic::kConvolution);
}

TEST(TaskWork, NamesSayHowBytesAreMoved) {
  const auto of = [](const char* name) {
    return Kernel().work(name, {{64}, {64}}, {4, 4}).traffic;
  };
  EXPECT_TRUE(of("aten::add.Tensor") == Traffic::kStream);
  EXPECT_TRUE(of("aten::relu") == Traffic::kStream);
  EXPECT_TRUE(of("aten::_fused_adamw_") == Traffic::kStream);
  EXPECT_TRUE(of("aten::gelu_backward") == Traffic::kFunction);
  EXPECT_TRUE(of("aten::exp") == Traffic::kFunction);
  EXPECT_TRUE(of("aten::logsumexp") == Traffic::kReduction);
  EXPECT_TRUE(of("aten::native_layer_norm") == Traffic::kReduction);
  EXPECT_TRUE(of("aten::embedding_dense_backward") == Traffic::kGather);
}

TEST(TaskCost, EachWayOfMovingBytesHasItsRate) {
  EmulatedSpec spec;
  spec.bandwidth = 2;
  spec.kernel_ns = 0;
  spec.of_bandwidth[size_t(Traffic::kFunction)] = 0.5;
  spec.of_bandwidth[size_t(Traffic::kGather)] = 0.25;
  TaskWork work;
  work.bytes = 1000;
  EXPECT_EQ(cost_of(spec, work).work, 500u);
  work.traffic = Traffic::kFunction;
  EXPECT_EQ(cost_of(spec, work).work, 1000u);
  work.traffic = Traffic::kGather;
  EXPECT_EQ(cost_of(spec, work).work, 2000u);
}

}  // namespace
}  // namespace npu
