#include "csrc/torch/host_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <unordered_set>

namespace npu {
namespace {

constexpr auto kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

std::atomic<Sanitizer*> sanitizer_{nullptr};
// See watch_thread_for_good().
thread_local bool stays_ = false;

// Whether the operator is a copy. Copies between the host and a device touch
// the host's memory in stream order, or tell the observer themselves.
bool copies(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::copy_" ||
         schema.name() == "aten::_foreach_copy_";
}

// The pageable memory that queued functions were given. It is kept until they
// are done, because nobody tells when it is freed and becomes another tensor's.
std::mutex lent_mutex_;  // guards lent_
std::map<const void*, c10::Storage>& lent_ =
    *new std::map<const void*,
                  c10::Storage>;  // never destroyed, as Python may be

void take_back_lent(Sanitizer& sanitizer) {
  std::vector<c10::Storage> done;  // freed without the lock
  std::lock_guard lock(lent_mutex_);
  for (auto at = lent_.begin(); at != lent_.end();) {
    const auto here = at++;
    if (sanitizer.host_pending(here->first)) continue;
    sanitizer.host_freed(here->first);
    done.push_back(std::move(here->second));
    lent_.erase(here);
  }
}

// Whether the operator changes a tensor without touching its memory.
bool leaves_memory_alone(const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> names = {
      "aten::resize_", "aten::set_", "aten::is_set_to", "aten::record_stream",
      "aten::_has_same_storage_numel"};
  if (names.contains(schema.name())) return true;
  for (const c10::Argument& r : schema.returns())
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  return false;
}

npu_view view_of(const at::Tensor& t, size_t word, uint8_t access) {
  return {t.sizes().data(),       t.strides().data(), uint32_t(t.dim()),
          uint32_t(t.itemsize()), uint32_t(word),     access};
}

// Tells the sanitizer which host memory an operator touches. One on the device
// reads 0-dim cpu tensors when it is launched.
void tell_host_op(Sanitizer& sanitizer, const c10::OperatorHandle& op,
                  const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
      schema.name() != "aten::copy_")
    return;
  const size_t n = schema.arguments().size();
  std::vector<npu_view> views;
  std::vector<uint64_t> words;
  bool on_device = false, only_scalars = true;
  const auto add = [&](const at::Tensor& t, bool writes) {
    if (!t.defined()) return;
    if (!t.device().is_cpu()) {
      on_device = true;
      return;
    }
    if (t.layout() != at::kStrided || !t.has_storage() || t.numel() == 0)
      return;
    only_scalars &= t.dim() == 0 && !writes;
    views.push_back(view_of(t, words.size(), writes ? NPU_WRITE : NPU_READ));
    words.push_back(reinterpret_cast<uint64_t>(t.const_data_ptr()));
  };
  for (size_t i = 0; i < n; ++i) {
    const c10::IValue& value = stack[stack.size() - n + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool writes = alias && alias->isWrite();
    if (value.isTensor()) {
      add(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) add(t, writes);
    }
  }
  if (on_device && (!only_scalars || copies(schema))) return;
  if (views.empty() || leaves_memory_alone(schema)) return;
  const std::string full_name = c10::toString(op.operator_name());
  const npu_kernel kernel{nullptr, full_name.c_str(), views.data(),
                          uint32_t(views.size())};
  sanitizer.host_touches(kernel, words.data());
}

// Sees the thread's operators while a copy to or from pinned memory may be
// under way. Making a view of the memory is no use of it; reading or writing it
// is.
void look_at_host_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  Sanitizer* sanitizer = host_ops_sanitizer();
  if (sanitizer && sanitizer->pinned_pending()) {
    tell_host_op(*sanitizer, op, *stack);
  } else {
    if (sanitizer) take_back_lent(*sanitizer);
    if (!sanitizer || !stays_)
      c10::impl::tls_set_dispatch_key_included(kModeKey, false);
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kModeKey),
      stack);
}

// Only those pay for it who look for races: a fallback changes the table of
// each operator that torch has.
void see_host_ops() {
  static auto& library = *[] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kModeKey,
                                    __FILE__, __LINE__);
    made->fallback(
        torch::CppFunction::makeFromBoxedFunction<&look_at_host_op>());
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

Sanitizer* watch_host_ops(Sanitizer* sanitizer) {
  if (sanitizer) see_host_ops();
  // Acquire and release: whoever finds a sanitizer here finds it constructed.
  Sanitizer* old = sanitizer_.exchange(sanitizer, std::memory_order_acq_rel);
  std::map<const void*, c10::Storage> freed;  // destroyed without the lock
  std::lock_guard lock(lent_mutex_);
  freed.swap(lent_);
  return old;
}

Sanitizer* host_ops_sanitizer() {
  // Acquire: pairs with the release in watch_host_ops().
  return sanitizer_.load(std::memory_order_acquire);
}

void watch_thread() {
  if (!c10::impl::tls_is_dispatch_key_included(kModeKey))
    c10::impl::tls_set_dispatch_key_included(kModeKey, true);
}

void watch_thread_for_good() {
  stays_ = true;
  watch_thread();
}

void sanitizer_host_uses(const at::Tensor& t, const char* by, bool writes) {
  Sanitizer* sanitizer = host_ops_sanitizer();
  if (!sanitizer || !t.device().is_cpu() || t.layout() != at::kStrided ||
      t.numel() == 0)
    return;
  const npu_view view = view_of(t, 0, NPU_READ | (writes ? NPU_WRITE : 0));
  const npu_kernel kernel{nullptr, by, &view, 1};
  const uint64_t word = reinterpret_cast<uint64_t>(t.const_data_ptr());
  sanitizer->host_touches(kernel, &word);
}

void sanitizer_host_escapes(const at::Tensor& t) {
  Sanitizer* sanitizer = host_ops_sanitizer();
  if (sanitizer && t.device().is_cpu() && t.has_storage())
    sanitizer->host_escaped(t.storage()
                                .unsafeGetStorageImpl()
                                ->_mutable_data_ptr_no_checks()
                                .get());
}

void lend_to_sanitizer(const std::vector<at::Tensor>& tensors) {
  Sanitizer* sanitizer = host_ops_sanitizer();
  if (!sanitizer) return;
  take_back_lent(*sanitizer);
  std::lock_guard lock(lent_mutex_);
  for (const at::Tensor& t : tensors) {
    if (!t.is_cpu() || !t.has_storage() || t.numel() == 0) continue;
    const c10::Storage& storage = t.storage();
    if (sanitizer->host_lent(storage.data(), storage.nbytes()))
      lent_.emplace(storage.data(), storage);
  }
}

}  // namespace npu
