// About how long a kernel takes on one thread.
#pragma once

#include <c10/util/ArrayRef.h>

#include <optional>
#include <string_view>

#include "csrc/driver/driver.h"

namespace npu {

// In nanoseconds, by a table that bench/widths.py measures. `name`: of the
// operator, "aten::add"; `element_wise`: each result is as large as the
// arguments together; `views`: the call's tensors on the device in order, then
// its new results. Nothing where the sizes do not tell it.
std::optional<double> kernel_ns(std::string_view name, bool element_wise,
                                at::ArrayRef<npu_view> views);

// How often a product of matrices multiplies two numbers; nothing: it is none.
std::optional<double> multiplications(std::string_view name,
                                      at::ArrayRef<npu_view> views);

inline constexpr std::string_view
    kAttention = "aten::_scaled_dot_product_flash_attention_for_cpu",
    kAttentionBackward =
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward";

// A step of an optimizer with fused=True, in place.
bool is_fused_step(std::string_view name);

int64_t elements(const npu_view& view);

}  // namespace npu
