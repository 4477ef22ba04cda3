#include "csrc/ops/unmarked_writes.h"

#include <string_view>

#include "csrc/driver/driver.h"

namespace npu {
namespace {

// Operators whose schemas are older than the marks of written arguments. All
// overloads of one have the same first arguments.
struct Unmarked {
  std::string_view op;
  size_t first, last;  // the arguments that it writes
  int if_true;         // only if this argument is true; -1: always
};
constexpr Unmarked kUnmarked[] = {
    // They write the running mean and variance.
    {"aten::native_batch_norm", 3, 4, 5},
    {"aten::batch_norm_update_stats", 1, 2, -1},
    // It writes the workspace.
    {"aten::mkldnn_rnn_layer_backward", 22, 22, -1},
};

std::string_view base_name(std::string_view name) {
  return name.substr(0, name.find('.'));
}

bool writes(const Op::Schema& schema, size_t i,
            c10::ArrayRef<c10::IValue> arguments) {
  if (schema.writes[i]) return true;
  if (!schema.unmarked_writes) [[likely]]
    return false;
  const std::string_view name = base_name(schema.full_name);
  for (const Unmarked& u : kUnmarked)
    if (i >= u.first && i <= u.last && name == u.op)
      return u.if_true < 0 || arguments[size_t(u.if_true)].toBool();
  return false;
}

}  // namespace

bool has_unmarked_writes(std::string_view full_name) {
  for (const Unmarked& u : kUnmarked)
    if (base_name(full_name) == u.op) return true;
  return false;
}

uint8_t access_of(const Op::Schema& schema, size_t i,
                  c10::ArrayRef<c10::IValue> arguments) {
  return writes(schema, i, arguments) ? NPU_READ | NPU_WRITE
                                      : uint8_t(NPU_READ);
}

}  // namespace npu
