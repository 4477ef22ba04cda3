#include "csrc/ops/third_party.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>

#include "csrc/base/hooks.h"

namespace npu {
namespace {

constexpr std::string_view kOfTorch[] = {
    "aten",      "prims",      "prim",   "quantized", "_quantized",
    "mkldnn",    "onednn",     "sparse", "c10d",      "_c10d_functional",
    "rngprims",  "debugprims", "fsdp",   "inductor",  "profiler",
    "_inductor", "symm_mem"};

}  // namespace

bool is_third_party(const Op& op) {
  const std::string_view name = op.name;
  const std::string_view space = name.substr(0, name.find("::"));
  return std::ranges::find(kOfTorch, space) == std::end(kOfTorch);
}

void warn_that_it_waits(const Op& op) {
  if (!is_third_party(op)) return;
  static auto* const mutex = new std::mutex;
  static auto* const told = new std::set<const Op*>;
  {
    std::lock_guard lock(*mutex);
    if (!told->insert(&op).second) return;
  }
  const Op::Schema& schema = op.schema();
  const std::string why =
      schema.tensors_only
          ? c10::str(
                "nothing tells the shapes of its results in advance: register "
                "a fake (meta) kernel with torch.library.register_fake(\"",
                op.name, "\"), unless the shapes depend on data")
          : "it returns something that is not a tensor";
  hooks.warn("npu: each call of " + schema.full_name +
             " waits for the device, because " + why + ". (Said once.)");
}

}  // namespace npu
