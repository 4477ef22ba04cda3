#include "csrc/distributed/reduction.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

namespace npu {
namespace {

using Op = c10d::ReduceOp;

bool is_bitwise(Op::RedOpType op) {
  return op == Op::BAND || op == Op::BOR || op == Op::BXOR;
}

bool is_unsigned(at::ScalarType t) {
  return t == at::kUInt16 || t == at::kUInt32 || t == at::kUInt64;
}

const char* name_of(Op::RedOpType op) {
  switch (op) {
    case Op::SUM:
      return "SUM";
    case Op::AVG:
      return "AVG";
    case Op::PRODUCT:
      return "PRODUCT";
    case Op::MIN:
      return "MIN";
    case Op::MAX:
      return "MAX";
    case Op::BAND:
      return "BAND";
    case Op::BOR:
      return "BOR";
    case Op::BXOR:
      return "BXOR";
    case Op::PREMUL_SUM:
      return "PREMUL_SUM";
    case Op::UNUSED:
      break;
  }
  return "an unknown reduction";
}

void accumulate(Op::RedOpType op, bool logical, at::Tensor& acc,
                const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case Op::SUM:
    case Op::AVG:
    case Op::PREMUL_SUM:
      if (logical)
        at::bitwise_or_out(acc, a, b);
      else
        at::add_out(acc, a, b);
      break;
    case Op::PRODUCT:
      if (logical)
        at::bitwise_and_out(acc, a, b);
      else
        at::mul_out(acc, a, b);
      break;
    case Op::MIN:
      at::minimum_out(acc, a, b);
      break;
    case Op::MAX:
      at::maximum_out(acc, a, b);
      break;
    case Op::BAND:
      at::bitwise_and_out(acc, a, b);
      break;
    case Op::BOR:
      at::bitwise_or_out(acc, a, b);
      break;
    case Op::BXOR:
      at::bitwise_xor_out(acc, a, b);
      break;
    case Op::UNUSED:
      TORCH_CHECK(false, "hccl: no reduction was given");
  }
}

}  // namespace

void check_reduction(const char* call, const Reduction& reduction,
                     at::ScalarType dtype) {
  const Op::RedOpType op = reduction.op;
  const char* why = nullptr;
  if (op == Op::UNUSED)
    why = "there is no such reduction";
  else if (at::isComplexType(dtype) && op != Op::SUM && op != Op::AVG &&
           op != Op::PREMUL_SUM)
    why = "complex numbers are summed or averaged only";
  else if (is_bitwise(op) && !at::isIntegralType(dtype, true))
    why = "bits are those of integers and bool";
  else if (dtype == at::kBool && (op == Op::AVG || op == Op::PREMUL_SUM))
    why = "truth values have no average; use another dtype";
  else if (is_unsigned(dtype) &&
           (op == Op::MIN || op == Op::MAX || op == Op::AVG))
    why = "torch does not compare these unsigned integers; use a signed dtype";
  else if (op == Op::PREMUL_SUM && !at::isFloatingType(dtype) &&
           !at::isComplexType(dtype))
    why = "the factor is a fraction; use a floating dtype";
  else if (at::isQIntType(dtype))
    why = "quantized tensors are not reduced";
  TORCH_CHECK_TYPE(!why, "hccl: ", call, " of ", dtype, " with ", name_of(op),
                   ": ", why);
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  Reduction reduction{op.op_, 1};
  if (op.op_ != Op::PREMUL_SUM) return reduction;
  const auto* by =
      dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(by, "hccl: PREMUL_SUM without a factor");
  reduction.factor = by->tensor_factor.defined()
                         ? by->tensor_factor.item<double>()
                         : by->double_factor;
  return reduction;
}

at::ScalarType reduced_as(at::ScalarType dtype) {
  if (dtype == at::kBool) return at::kByte;
  if (dtype == at::kUInt16) return at::kShort;
  if (dtype == at::kUInt32) return at::kInt;
  if (dtype == at::kUInt64) return at::kLong;
  return at::isComplexType(dtype) ? c10::toRealValueType(dtype) : dtype;
}

at::Tensor prepared(const Reduction& reduction, const at::Tensor& part) {
  if (reduction.op != Op::PREMUL_SUM) return part;
  if (part.itemsize() > 1) return at::mul(part, reduction.factor);
  return at::mul(part.to(at::kFloat), reduction.factor).to(part.dtype());
}

void combine(const Reduction& reduction, const std::vector<at::Tensor>& parts,
             at::Tensor out, bool logical) {
  const at::ScalarType dtype = out.scalar_type();
  const bool wide = at::isFloatingType(dtype) && out.itemsize() < 4;
  const bool average = reduction.op == Op::AVG;
  if (parts.size() == 1 && !average) {
    if (parts[0].data_ptr() != out.data_ptr()) out.copy_(parts[0]);
    return;
  }
  // A later part may be `out`, so at most two parts are reduced in place.
  at::Tensor acc =
      !wide && parts.size() <= 2
          ? out
          : at::empty({out.numel()},
                      out.options().dtype(wide ? at::kFloat : dtype));
  if (wide || parts.size() == 1) acc.copy_(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor& first = i == 1 && !wide ? parts[0] : acc;
    const at::Tensor next =
        out.itemsize() == 1 && wide ? parts[i].to(at::kFloat) : parts[i];
    accumulate(reduction.op, logical, acc, first, next);
  }
  if (average) {
    if (at::isIntegralType(dtype, false))
      acc.div_(int64_t(parts.size()), "trunc");
    else
      acc.div_(double(parts.size()));
  }
  if (!acc.is_same(out)) out.copy_(acc);
}

}  // namespace npu
