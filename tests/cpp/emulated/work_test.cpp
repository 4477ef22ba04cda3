// What kernels have to do, by their names and shapes, and what it costs.
#include "csrc/driver/emulated/work.h"

#include <vector>

#include "csrc/driver/emulated/cost.h"
#include "tests/cpp/check.h"

namespace npu {
namespace {

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
  spec.function = 0.5;
  spec.gather = 0.25;
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
