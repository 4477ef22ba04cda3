#include "csrc/ops/widened.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <string_view>

namespace npu {
namespace {

struct Narrow {
  std::string_view op;
  c10::ArrayRef<at::ScalarType> dtypes;
};

constexpr at::ScalarType kHalves[] = {at::kHalf, at::kBFloat16};
constexpr at::ScalarType kIntegers[] = {at::kByte, at::kChar, at::kShort,
                                        at::kInt, at::kLong};
constexpr at::ScalarType kBoolOnly[] = {at::kBool};
constexpr at::ScalarType kComplexHalfOnly[] = {at::kComplexHalf};
constexpr at::ScalarType kBoolAndComplexHalf[] = {at::kBool, at::kComplexHalf};

// tests/conformance/cuda_dtypes.py compares this with torch's operator
// database.
constexpr Narrow kNarrow[] = {
    {"aten::histc", kIntegers},
    {"aten::abs", kBoolOnly},
    {"aten::trace", kBoolAndComplexHalf},
    {"aten::avg_pool3d", kHalves},
    {"aten::avg_pool3d_backward", kHalves},
    {"aten::_upsample_bilinear2d_aa", kHalves},
    {"aten::_upsample_bilinear2d_aa_backward", kHalves},
    {"aten::multi_margin_loss", kHalves},
    {"aten::multi_margin_loss_backward", kHalves},
    {"aten::multilabel_margin_loss_forward", kHalves},
    {"aten::multilabel_margin_loss_backward", kHalves},
    {"aten::_fft_c2c", kComplexHalfOnly},
    {"aten::_fft_c2r", kComplexHalfOnly},
    {"aten::acos", kComplexHalfOnly},
    {"aten::acosh", kComplexHalfOnly},
    {"aten::angle", kComplexHalfOnly},
    {"aten::asin", kComplexHalfOnly},
    {"aten::asinh", kComplexHalfOnly},
    {"aten::atan", kComplexHalfOnly},
    {"aten::atanh", kComplexHalfOnly},
    {"aten::cos", kComplexHalfOnly},
    {"aten::cosh", kComplexHalfOnly},
    {"aten::div.Tensor", kComplexHalfOnly},
    {"aten::exp", kComplexHalfOnly},
    {"aten::lerp.Scalar", kComplexHalfOnly},
    {"aten::lerp.Tensor", kComplexHalfOnly},
    {"aten::log", kComplexHalfOnly},
    {"aten::logaddexp", kComplexHalfOnly},
    {"aten::pow.Scalar", kComplexHalfOnly},
    {"aten::pow.Tensor_Scalar", kComplexHalfOnly},
    {"aten::pow.Tensor_Tensor", kComplexHalfOnly},
    {"aten::prod", kComplexHalfOnly},
    {"aten::prod.dim_int", kComplexHalfOnly},
    {"aten::rsqrt", kComplexHalfOnly},
    {"aten::sigmoid", kComplexHalfOnly},
    {"aten::sin", kComplexHalfOnly},
    {"aten::sinh", kComplexHalfOnly},
    {"aten::sqrt", kComplexHalfOnly},
    {"aten::sum.dim_IntList", kComplexHalfOnly},
    {"aten::tan", kComplexHalfOnly},
    {"aten::tanh", kComplexHalfOnly},
};

at::ScalarType wider(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    case at::kComplexHalf:
      return at::kComplexFloat;
    case at::kBool:
      return at::kByte;
    default:
      return at::kDouble;
  }
}

// The dtype to which a result in the wider dtype is converted; nothing: it
// stays.
std::optional<at::ScalarType> brought_back(at::ScalarType narrow,
                                           at::ScalarType result) {
  if (result == wider(narrow)) return narrow;
  // The absolute value or the angle of a complex number.
  if (narrow == at::kComplexHalf && result == at::kFloat) return at::kHalf;
  return std::nullopt;
}

const at::Tensor* first_tensor(const torch::jit::Stack& stack) {
  for (const c10::IValue& value : stack)
    if (value.isTensor() && value.toTensor().defined())
      return &value.toTensor();
  return nullptr;
}

}  // namespace

at::ArrayRef<at::ScalarType> widened_dtypes(std::string_view op) {
  for (const Narrow& narrow : kNarrow)
    if (narrow.op == op) return narrow.dtypes;
  return {};
}

bool call_widened(const Op& op, torch::jit::Stack& stack) {
  const Op::Schema& schema = op.schema();
  if (schema.widened.empty()) [[likely]]
    return false;
  const at::Tensor* const first = first_tensor(stack);
  if (!first) return false;
  const at::ScalarType narrow = first->scalar_type();
  if (!std::ranges::count(schema.widened, narrow)) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (c10::IValue& value : stack)
    if (value.isTensor() && value.toTensor().defined() &&
        value.toTensor().scalar_type() == narrow)
      value = value.toTensor().to(wider(narrow));
  schema.handle.callBoxed(&stack);
  for (c10::IValue& value : stack)
    if (value.isTensor() && value.toTensor().defined())
      if (const auto dtype =
              brought_back(narrow, value.toTensor().scalar_type()))
        value = value.toTensor().to(*dtype);
  return true;
}

}  // namespace npu
