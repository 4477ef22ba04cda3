// Random numbers of floats, drawn with vector instructions.
//
// torch's cpu kernels draw one number after the other from a Mersenne twister.
// These compute Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy
// as 1, 2, 3, 2011): a number is a function of seed, offset and its place, so
// that several are computed at once, and the same whoever computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/base/random_seed.h"

namespace npu {

// Each returns false, and has done nothing, where torch's own kernel is to
// draw: for the first launch of a seed, which gives what cpu gives, and for
// tensors of other types or with gaps. Element i is the i-th in memory.

// True with a probability of `keep`.
bool fill_bernoulli(at::Tensor& out, double keep, RandomSeed seed);
// Evenly from `low` to less than `high`.
bool fill_uniform(at::Tensor& out, double low, double high, RandomSeed seed);
// Normally distributed.
bool fill_normal(at::Tensor& out, double mean, double deviation,
                 RandomSeed seed);

}  // namespace npu
