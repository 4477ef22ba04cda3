#include "csrc/ops/argument_storages.h"

#include "csrc/ops/stack_map.h"
#include "csrc/torch/sparse_or_nested.h"
#include "csrc/torch/storage_end.h"

namespace npu {

bool argument_ends_beyond_storage(const Op& op,
                                  at::ArrayRef<c10::IValue> arguments,
                                  bool raises) {
  const Op::Schema& schema = op.schema();
  bool found = false;
  for_each_tensor(schema, arguments, [&](const at::Tensor& t, size_t argument) {
    const auto look = [&](const at::Tensor& dense) {
      if (!dense.defined() || !ends_beyond_storage(dense)) return;
      found = true;
      const auto& name = schema.handle.schema().arguments()[argument].name();
      if (raises)
        raise_beyond_storage(schema.full_name, "argument '" + name + "'",
                             dense);
    };
    if (!is_sparse_or_nested(t)) return look(t);
    for (const at::Tensor& part : parts_of(t)) look(part);
  });
  return found;
}

}  // namespace npu
