// Registers kernels of torch's own operators, as TORCH_LIBRARY_IMPL does, and
// leaves out what most of its time goes into: it parses each name as a schema,
// infers a schema from each function, and compares that with the operator's.
// Here the functions are written from the schemas, or the compiler and torch's
// comparison of C++ signatures, which stays, refuse them.
#pragma once

#include <ATen/core/dispatch/CppSignature.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/macros/Macros.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace npu {

class Kernels {
 public:
  Kernels(c10::DispatchKey key, const char* file) : key_(key), file_(file) {}

  // `name` as in "add.Tensor", `kernel` as in TORCH_FN(add).
  template <class Function, class = typename Function::FuncType>
  void impl(std::string_view name, Function kernel) {
    add(of_aten(name), c10::KernelFunction::makeFromUnboxedFunction(kernel),
        c10::impl::CppSignature::make<typename Function::FuncType>(), {});
  }
  // `note` is shown where torch lists an operator's kernels.
  void impl(std::string_view name, c10::KernelFunction kernel,
            std::string note = {}) {
    impl(of_aten(name), std::move(kernel), std::move(note));
  }
  void impl(c10::OperatorName name, c10::KernelFunction kernel,
            std::string note = {}) {
    add(std::move(name), std::move(kernel), std::nullopt, std::move(note));
  }
  // For each operator that has no other kernel.
  void fallback(c10::KernelFunction kernel);

 private:
  static c10::OperatorName of_aten(std::string_view name);
  void add(c10::OperatorName name, c10::KernelFunction kernel,
           std::optional<c10::impl::CppSignature> signature, std::string note);

  c10::DispatchKey key_;
  const char* file_;
};

template <c10::KernelFunction::BoxedKernelFunction* function>
c10::KernelFunction boxed_kernel() {
  return c10::KernelFunction::makeFromBoxedFunction<function>();
}

}  // namespace npu

// Begins a function that registers kernels for a key, when the module is
// loaded.
#define NPU_KERNELS(key, m) NPU_KERNELS_OF(key, m, C10_UID)
#define NPU_KERNELS_OF(key, m, id)                                        \
  void C10_CONCATENATE(register_kernels_, id)(::npu::Kernels & m);        \
  [[maybe_unused]] const bool C10_CONCATENATE(are_registered_, id) = [] { \
    ::npu::Kernels m(c10::DispatchKey::key, __FILE__);                    \
    C10_CONCATENATE(register_kernels_, id)(m);                            \
    return true;                                                          \
  }();                                                                    \
  void C10_CONCATENATE(register_kernels_, id)(::npu::Kernels & m)
