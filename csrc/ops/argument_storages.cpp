#include "csrc/ops/argument_storages.h"

#include "csrc/ops/stack_map.h"
#include "csrc/torch/sparse_or_nested.h"
#include "csrc/torch/storage_end.h"

namespace npu {
namespace {

// Calls visit(tensor, argument) for each tensor that ends beyond its storage,
// also where it is a part of a sparse or nested tensor.
template <typename Visit>
void for_each_beyond_storage(const Op& op, at::ArrayRef<c10::IValue> arguments,
                             Visit visit) {
  for_each_tensor(op.schema(), arguments,
                  [&](const at::Tensor& t, size_t argument) {
                    const auto look = [&](const at::Tensor& dense) {
                      if (dense.defined() && ends_beyond_storage(dense))
                        visit(dense, argument);
                    };
                    if (!is_sparse_or_nested(t)) return look(t);
                    for (const at::Tensor& part : parts_of(t)) look(part);
                  });
}

}  // namespace

bool argument_ends_beyond_storage(const Op& op,
                                  at::ArrayRef<c10::IValue> arguments) {
  bool found = false;
  for_each_beyond_storage(op, arguments,
                          [&](const at::Tensor&, size_t) { found = true; });
  return found;
}

void check_argument_storages(const Op& op,
                             at::ArrayRef<c10::IValue> arguments) {
  for_each_beyond_storage(
      op, arguments, [&](const at::Tensor& t, size_t argument) {
        const Op::Schema& schema = op.schema();
        raise_beyond_storage(
            schema.full_name,
            "argument '" + schema.handle.schema().arguments()[argument].name() +
                "'",
            t);
      });
}

}  // namespace npu
