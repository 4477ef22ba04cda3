#include "csrc/ops/shared_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>

#include "csrc/ops/kernel_size.h"
#include "csrc/ops/launch_state.h"
#include "csrc/ops/piece_mode.h"
#include "csrc/placement/shared_loop.h"
#include "csrc/torch/kernel_threads.h"

namespace npu {
namespace {

// How the result is cut: along a dimension, into pieces of about the same
// length.
struct Cut {
  int64_t dim, length;
  int pieces;
};

// One piece for each thread: the BLAS packs the factor that is not cut for each
// of them. The batch is cut, or else the longer dimension.
Cut cut_of(const at::Tensor& a, const at::Tensor& b, int threads) {
  constexpr int64_t kShortest = 32;  // rows or columns
  const int64_t rows = a.size(-2), columns = b.size(-1);
  Cut cut{0, 0, 0};
  if (a.dim() == 3)
    cut = {0, a.size(0), int(std::min<int64_t>(a.size(0), threads))};
  else if (rows >= columns)
    cut = {0, rows, int(std::min<int64_t>(rows / kShortest, threads))};
  else
    cut = {1, columns, int(std::min<int64_t>(columns / kShortest, threads))};
  return cut;
}

// What a piece computes: the same part of each tensor that the cut divides.
struct Piece {
  const Cut& cut;
  int number;

  at::Tensor of(const at::Tensor& t, int64_t dim) const {
    const int64_t from = cut.length * number / cut.pieces;
    const int64_t to = cut.length * (number + 1) / cut.pieces;
    return t.narrow(dim, from, to - from);
  }
  at::Tensor of(const at::Tensor& t) const { return of(t, cut.dim); }
  at::Tensor first(const at::Tensor& a) const {
    return a.dim() == 3 || cut.dim == 0 ? of(a, 0) : a;
  }
  at::Tensor second(const at::Tensor& b) const {
    if (b.dim() == 3) return of(b, 0);
    return cut.dim == 1 ? of(b, 1) : b;
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
  const Cut cut = cut_of(a, b, threads);
  if (cut.pieces < 2) return false;
  struct Call {
    const Cut& cut;
    const Multiply& multiply;
    const bool flushes_denormal;
  } call{cut, multiply, LaunchState::flushes_denormal()};
  run_shared(
      threads, cut.pieces,
      [](void* context, int number) {
        const Call& call = *static_cast<const Call*>(context);
        const PieceMode mode(call.flushes_denormal);
        call.multiply(Piece{call.cut, number});
      },
      &call, multiplications >= kWakingProduct);
  return true;
}

template <typename Multiply>
bool product(Frame& f, const Multiply& multiply) {
  const at::Tensor &a = f.tensor(0), &b = f.tensor(1), &all = f.out(0);
  return share(a, b, all, [&](const Piece& piece) {
    at::Tensor out = piece.of(all);
    multiply(piece.first(a), piece.second(b), out);
  });
}

template <typename Multiply>
bool added_product(Frame& f, const Multiply& multiply) {
  const at::Tensor &a = f.tensor(1), &b = f.tensor(2), &all = f.out(0);
  return share(a, b, all, [&](const Piece& piece) {
    at::Tensor out = piece.of(all);
    const at::Tensor c = piece.of(f.tensor(0).expand(all.sizes()));
    multiply(c, piece.first(a), piece.second(b), f.scalar(3), f.scalar(4), out);
  });
}

}  // namespace

bool is_shared_product(at::ScalarType dtype, double multiplications) {
  return (dtype == at::kFloat || dtype == at::kDouble) &&
         multiplications >= kSharedProduct && multiplications < kTeamProduct;
}

bool run_shared_mm_out(Frame& f) {
  return product(f, [](const auto& a, const auto& b, auto& out) {
    at::cpu::mm_outf(a, b, out);
  });
}
bool run_shared_bmm_out(Frame& f) {
  return product(f, [](const auto& a, const auto& b, auto& out) {
    at::cpu::bmm_outf(a, b, out);
  });
}
bool run_shared_addmm_out(Frame& f) {
  return added_product(f, [](const auto& c, const auto& a, const auto& b,
                             const auto& beta, const auto& alpha, auto& out) {
    at::cpu::addmm_outf(c, a, b, beta, alpha, out);
  });
}
bool run_shared_baddbmm_out(Frame& f) {
  return added_product(f, [](const auto& c, const auto& a, const auto& b,
                             const auto& beta, const auto& alpha, auto& out) {
    at::cpu::baddbmm_outf(c, a, b, beta, alpha, out);
  });
}

}  // namespace npu
