#include "csrc/ops/launch.h"

#include <c10/core/AutogradState.h>

#include <new>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/ops/plan.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/torch/device.h"
#include "csrc/torch/error.h"
#include "csrc/torch/tensor.h"

namespace npu {

namespace {

// The thread's next free key; null before its first call.
constinit thread_local Key* next_key_ = nullptr;

// The state that a thread gets at its first call of an operator.
struct ThreadState {
  // Makes backward run on the calling thread. Launching is asynchronous, so
  // autograd's threads per device would only add two thread switches.
  // NPU_AUTOGRAD_THREADS=1 keeps torch's default.
  ThreadState() {
    static const bool keep = env_flag("NPU_AUTOGRAD_THREADS");
    if (!keep)
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~ThreadState() { next_key_ = nullptr; }
  Key first;
};

// The current stream of the device where the call's tensors are, else of the
// device that it names.
Stream& stream_of(const Key& key) {
  if (key.device >= 0) [[likely]]
    return current_stream(key.device);
  return key.named_device < 0 ? current_stream(current_device())
                              : usable_stream(key.named_device);
}

// Fills in the generator's words, now that the device is known.
void draw(Key& key, const Stream& stream,
          const std::optional<at::Generator>& generator) {
  const RandomSeed seed = reserve(generator, stream.device());
  key.words.set(key.random_word, seed.seed);
  key.words.set(key.random_word + 1, seed.offset);
}

// Counts a call that is timed, and has the one after a sampled task timed. A
// call that runs its task, or is captured, queues nothing.
[[gnu::noinline, gnu::cold]] void time_calls(Stream& stream, Key& key,
                                             const Submission& s) {
  const uint64_t entered = KeyScope::entered(key);
  if (entered && !stream.waits_for_each_task() && !stream.sink())
    stream.block().call_ns.add_shared(
        ticks_to_ns(ticks_between(entered, ticks())));
  if (is_sampled(s.position)) KeyScope::time_next(key);
}

// A launch executes about as much code as the first-level instruction cache
// holds. What every launch calls is `hot`: the linker puts it next to each
// other.
[[gnu::hot]] void launch(Stream& stream, Plan& plan, Key& key,
                         at::Tensor* outs) {
  uint32_t n_outs = 0;
  for (const OutSpec& spec : plan.outs) {
    if (spec.defined) [[likely]]
      outs[n_outs] =
          spec.contiguous
              ? make_contiguous(stream, spec.sizes, spec.dtype, spec.bytes)
              : make_tensor(stream, spec.sizes, spec.strides, spec.dtype);
    ++n_outs;
  }
  Submission s;
  if (!stream.begin(plan.n_words, s, call_site())) [[unlikely]]
    raise_stream_error(stream);
  s.task->kernel = &plan;
  const uint64_t* from = key.words.data();
  uint64_t* to = s.words;
  for (size_t i = 0; i < key.words.size(); ++i) *to++ = from[i];
  for (uint32_t i = 0; i < n_outs; ++i)
    if (outs[i].defined())
      *to++ = reinterpret_cast<uint64_t>(
          outs[i].unsafeGetTensorImpl()->mutable_data());
  const bool timed = (KeyScope::entered(key) | s.task->stamp) != 0;
  stream.commit(s);
  if (timed) [[unlikely]]
    time_calls(stream, key, s);
  stream.after_commit(s);
}

// What every launch of a known call does, boxed or not. place(plan) returns
// where the plan's new results go.
template <typename Place>
bool launch_into(Key& key, Place place,
                 const std::optional<at::Generator>* generator) {
  if (!key.ordinary) [[unlikely]]
    return false;
  Stream& stream = stream_of(key);
  Plan* const plan = plan_table(stream).find(key, key.hash());
  if (!plan) [[unlikely]]
    return false;
  try {
    if (generator) [[unlikely]]
      draw(key, stream, *generator);
    launch(stream, *plan, key, place(*plan));
  } catch (const std::bad_alloc&) {
    raise_no_host_memory(plan->name);
  }
  return true;
}

}  // namespace

void set_up_thread() { const KeyScope first; }

[[gnu::hot]] Key& KeyScope::enter() {
  Key* key = next_key_;
  if (!key || !key->deeper_) [[unlikely]] {
    Key& first = PerThread<ThreadState>::get().first;
    if (!key) key = &first;
    if (key->aside_) {
      key->deeper_ = std::move(key->aside_);
      key->entered_ = ticks();
      next_key_ = key->deeper_.get();
      return *key;
    }
    key->free_ = &next_key_;
    key->nested_ = key != &first;
    key->deeper_ = std::make_unique<Key>();
  }
  key->entered_ = 0;
  next_key_ = key->deeper_.get();
  return *key;
}

void detail::take_new(const Op& op, const torch::jit::Stack& results,
                      at::Tensor* outs) {
  const auto& returns = op.schema().returns;
  for (size_t i = 0; i < returns.size(); ++i)
    if (returns[i].argument < 0) *outs++ = results[i].toTensor();
}

void launch_planned(Stream& stream, Plan& plan, Key& key,
                    c10::SmallVectorImpl<at::Tensor>& outs,
                    const std::optional<at::Generator>* generator) {
  if (generator) draw(key, stream, *generator);
  outs.resize(plan.outs.size());
  launch(stream, plan, key, outs.data());
}

[[gnu::hot]] bool launch_known(Key& key, at::Tensor* outs,
                               const std::optional<at::Generator>* generator) {
  return launch_into(key, [&](const Plan&) { return outs; }, generator);
}

[[gnu::hot]] bool launch_known(Key& key, c10::SmallVectorImpl<at::Tensor>& outs,
                               const std::optional<at::Generator>* generator) {
  const auto place = [&](const Plan& plan) {
    outs.resize(plan.outs.size());
    return outs.data();
  };
  return launch_into(key, place, generator);
}

}  // namespace npu
