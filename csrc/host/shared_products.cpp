#include "csrc/host/shared_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>

#include "csrc/host/kernel_cut.h"
#include "csrc/host/kernel_size.h"
#include "csrc/host/kernel_threads.h"

namespace npu {
namespace {

// How the result is split: along a dimension, into pieces of about the same
// length.
struct Split {
  int64_t dim, length;
  int pieces;
};

// One piece for each thread: the BLAS packs the factor that is not split for
// each of them. The batch is split, or else the longer dimension.
Split split_of(const at::Tensor& a, const at::Tensor& b, int threads) {
  constexpr int64_t kShortest = 32;  // rows or columns
  const int64_t rows = a.size(-2), columns = b.size(-1);
  Split split{0, 0, 0};
  if (a.dim() == 3)
    split = {0, a.size(0), int(std::min<int64_t>(a.size(0), threads))};
  else if (rows >= columns)
    split = {0, rows, int(std::min<int64_t>(rows / kShortest, threads))};
  else
    split = {1, columns, int(std::min<int64_t>(columns / kShortest, threads))};
  return split;
}

// What a piece computes: the same part of each tensor that the split divides.
struct Piece {
  const Split& split;
  int number;

  at::Tensor of(const at::Tensor& t, int64_t dim) const {
    const int64_t from = split.length * number / split.pieces;
    const int64_t to = split.length * (number + 1) / split.pieces;
    return t.narrow(dim, from, to - from);
  }
  at::Tensor of(const at::Tensor& t) const { return of(t, split.dim); }
  at::Tensor first(const at::Tensor& a) const {
    return a.dim() == 3 || split.dim == 0 ? of(a, 0) : a;
  }
  at::Tensor second(const at::Tensor& b) const {
    if (b.dim() == 3) return of(b, 0);
    return split.dim == 1 ? of(b, 1) : b;
  }
};

// Runs `multiply` on each piece. False: the product is not to be shared.
template <typename Multiply>
bool share(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
           const Multiply& multiply) {
  const double multiplications = double(out.numel()) * double(a.size(-1));
  if (!is_shared_product(a.scalar_type(), multiplications)) return false;
  // A piece would overwrite what another one has yet to read.
  if (out.is_alias_of(a) || out.is_alias_of(b)) return false;
  const int threads = threads_of_large_kernels();
  const Split split = split_of(a, b, threads);
  if (split.pieces < 2) return false;
  run_pieces(split.pieces, multiplications >= kWakingProduct,
             [&](int number) { multiply(Piece{split, number}); });
  return true;
}

}  // namespace

bool is_shared_product(at::ScalarType dtype, double multiplications) {
  return (dtype == at::kFloat || dtype == at::kDouble) &&
         multiplications >= kSharedProduct && multiplications < kTeamProduct;
}

bool shared_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return share(a, b, out, [&](const Piece& piece) {
    at::Tensor part = piece.of(out);
    if (a.dim() == 3)
      at::cpu::bmm_outf(piece.first(a), piece.second(b), part);
    else
      at::cpu::mm_outf(piece.first(a), piece.second(b), part);
  });
}

bool shared_product(const at::Tensor& c, const at::Tensor& a,
                    const at::Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha, at::Tensor& out) {
  return share(a, b, out, [&](const Piece& piece) {
    at::Tensor part = piece.of(out);
    const at::Tensor added = piece.of(c.expand(out.sizes()));
    const at::Tensor x = piece.first(a), y = piece.second(b);
    if (a.dim() == 3)
      at::cpu::baddbmm_outf(added, x, y, beta, alpha, part);
    else
      at::cpu::addmm_outf(added, x, y, beta, alpha, part);
  });
}

}  // namespace npu
