#include "csrc/ops/kernels.h"

#include <vector>

namespace npu {
namespace {

// Never destroyed: to take back kernels, operator by operator, is no work for a
// process that ends.
void keep(c10::RegistrationHandleRAII registered) {
  static auto& all = *new std::vector<c10::RegistrationHandleRAII>;
  all.push_back(std::move(registered));
}

}  // namespace

void Kernels::fallback(c10::KernelFunction kernel) {
  keep(c10::Dispatcher::singleton().registerFallback(key_, std::move(kernel),
                                                     file_));
}

c10::OperatorName Kernels::of_aten(std::string_view name) {
  const size_t dot = name.find('.');
  std::string overload;
  if (dot != name.npos) overload = name.substr(dot + 1);
  return {std::string("aten::").append(name.substr(0, dot)),
          std::move(overload)};
}

void Kernels::add(c10::OperatorName name, c10::KernelFunction kernel,
                  std::optional<c10::impl::CppSignature> signature,
                  std::string note) {
  keep(c10::Dispatcher::singleton().registerImpl(
      std::move(name), key_, std::move(kernel), std::move(signature), nullptr,
      note.empty() ? file_ : std::move(note)));
}

}  // namespace npu
