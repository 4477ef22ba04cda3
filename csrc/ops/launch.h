// Turns a call into a queued task: the path that every operator takes.
#pragma once

#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "csrc/ops/key.h"
#include "csrc/ops/op.h"
#include "csrc/ops/overlap.h"

namespace npu {

// Makes backward run on the thread that calls it, from now on and for this
// thread. The first operator that a thread calls does the same. A later
// torch.autograd.set_multithreading_enabled() has the last word.
void set_up_thread();

// Launches an encoded call whose plan is known: queues one task. False, with
// nothing done: the caller has to use the cold path. `outs` receives the new
// results; `generator` is the call's, null if it takes none. Throws, with
// nothing queued, when there is no memory, or the stream's pending error.
bool launch_known(Key& key, at::Tensor* outs,
                  const std::optional<at::Generator>* generator);
// The same, where only the plan knows how many results there are.
bool launch_known(Key& key, c10::SmallVectorImpl<at::Tensor>& outs,
                  const std::optional<at::Generator>* generator);

// Launches the call by a plan that the caller has just made for the key.
class Plan;
class Stream;
void launch_planned(Stream& stream, Plan& plan, Key& key,
                    c10::SmallVectorImpl<at::Tensor>& outs,
                    const std::optional<at::Generator>* generator);

// Takes a call whose key is not known yet: checks it, infers shapes, makes the
// plan and launches it, or runs the operator while the caller waits. Exchanges
// the arguments on the stack for the results, as any boxed kernel does.
void call_cold(const Op& op, torch::jit::Stack& stack);
// How many tasks have been launched in this way.
uint64_t cold_launches();

namespace detail {

inline const std::optional<at::Generator>* generator_among() { return nullptr; }
template <typename T, typename... Rest>
const std::optional<at::Generator>* generator_among(const T& first,
                                                    const Rest&... rest) {
  if constexpr (std::is_same_v<T, std::optional<at::Generator>>)
    return &first;
  else
    return generator_among(rest...);
}

// The form in which a boxed call takes an argument.
template <typename T>
const T& boxable(const T& value) {
  return value;
}
inline std::vector<at::Tensor> boxable(const at::ITensorListRef& list) {
  return {list.begin(), list.end()};
}

// Takes those results of a boxed call that are not its arguments.
void take_new(const Op& op, const torch::jit::Stack& results, at::Tensor* outs);

template <typename... Args>
torch::jit::Stack box(const Args&... args) {
  torch::jit::Stack stack;
  stack.reserve(sizeof...(Args));
  (stack.emplace_back(boxable(args)), ...);
  return stack;
}

template <typename... Args>
[[gnu::noinline, gnu::cold]] torch::jit::Stack call_cold_typed(
    const Op& op, const Args&... args) {
  torch::jit::Stack stack = box(args...);
  call_cold(op, stack);
  return stack;
}

}  // namespace detail

// Encodes the call and launches it if its plan is known. `kWritten` is that of
// note_overlaps().
template <uint32_t kWritten = 0, typename... Args>
bool try_launch(const Op& op, at::Tensor* outs, const Args&... args) {
  KeyScope scope;
  Key& key = scope.key;
  key.reset(&op, op.numbers == NumbersInKey::kYes);
  (key.add(args), ...);
  if constexpr (kWritten != 0) note_overlaps<kWritten>(key, args...);
  return launch_known(key, outs, detail::generator_among(args...));
}

// The forms of a call, by what the operator returns.

template <typename... Args>
at::Tensor call_new(const Op& op, const Args&... args) {
  at::Tensor result;
  if (try_launch(op, &result, args...)) [[likely]]
    return result;
  return detail::call_cold_typed(op, args...)[0].toTensor();
}

template <size_t N, uint32_t kWritten = 0, typename... Args>
std::array<at::Tensor, N> call_new_several(const Op& op, const Args&... args) {
  std::array<at::Tensor, N> results;
  if (try_launch<kWritten>(op, results.data(), args...)) [[likely]]
    return results;
  const auto stack = detail::call_cold_typed(op, args...);
  detail::take_new(op, stack, results.data());
  return results;
}

// For operators that only write their arguments; the caller returns those.
template <uint32_t kWritten, typename... Args>
void call_in_place(const Op& op, const Args&... args) {
  if (try_launch<kWritten>(op, nullptr, args...)) [[likely]]
    return;
  detail::call_cold_typed(op, args...);
}

}  // namespace npu
