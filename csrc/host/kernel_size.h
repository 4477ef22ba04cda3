// How many threads a kernel is worth: a function of operator and sizes alone,
// so that results depend neither on load nor on what ran before.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

#include "csrc/driver/driver.h"
#include "csrc/host/kernel_threads.h"

namespace npu {

// Multiplications from which a product is run in pieces (shared_loop.h), some
// 20 microseconds, from which helpers that sleep are woken for it, and from
// which OpenMP's team is faster again: it packs a factor once for all members,
// where each piece packs it for itself. bench/products.py.
inline constexpr double kSharedProduct = 1e6, kWakingProduct = 4e6,
                        kTeamProduct = 1.3e8;

// How long a kernel takes on one thread that has a team, which OpenMP has to
// wake while somebody launches. bench/widths.py.
inline constexpr double kAloneNs = 250'000;

// Of an element-wise kernel from which it is run in pieces, and from which a
// helper that sleeps is woken for them. bench/widths.py.
inline constexpr double kPieceNs = 25'000, kWakingNs = 80'000;

// `arguments`: the call's; the others as of kernel_ns().
KernelSize kernel_size(std::string_view name, bool element_wise,
                       at::ArrayRef<c10::IValue> arguments,
                       at::ArrayRef<npu_view> views);

// kNested for an operator that factorises matrices in torch's own loop over a
// batch, where its largest tensor has `ndim` dimensions; else kLarge.
KernelSize size_of_large(std::string_view name, int64_t ndim);

}  // namespace npu
