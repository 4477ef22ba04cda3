#include "csrc/torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <string.h>

#include <array>
#include <memory>
#include <mutex>

#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/graph/capture.h"
#include "csrc/stats/layout.h"
#include "csrc/torch/device.h"

namespace npu {
namespace {

// Offsets grow in steps of four, as those of Philox counters do.
constexpr uint64_t kStep = 4;

// What generators draw from. Several may share it: graphsafe_get_state().
class SeedState {
 public:
  RandomSeed get() const {
    std::lock_guard lock(mutex_);
    return next_;
  }
  void set(RandomSeed next) {
    std::lock_guard lock(mutex_);
    next_ = next;
  }
  void set_offset(uint64_t offset) {
    std::lock_guard lock(mutex_);
    next_.offset = offset;
  }
  RandomSeed reserve(uint64_t draws) {
    std::lock_guard lock(mutex_);
    const RandomSeed taken = next_;
    next_.offset += draws * kStep;
    return taken;
  }

 private:
  mutable std::mutex mutex_;
  RandomSeed next_{c10::default_rng_seed_val, 0};
};

// Bytes of the state: 8 of seed, 8 of offset. Methods are called with mutex_
// held, as torch requires.
struct NpuGenerator final : c10::GeneratorImpl {
  explicit NpuGenerator(
      c10::DeviceIndex index,
      std::shared_ptr<SeedState> state = std::make_shared<SeedState>())
      : c10::GeneratorImpl(c10::Device(kNpu, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}

  void set_current_seed(uint64_t seed) override {
    forbid_change("changing the seed");
    state()->set({seed, 0});
  }
  void set_offset(uint64_t offset) override {
    forbid_change("changing the offset");
    check_offset(offset);
    state()->set_offset(offset);
  }
  uint64_t get_offset() const override { return state()->get().offset; }
  uint64_t current_seed() const override { return state()->get().seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return current_seed();
  }

  void set_state(const c10::TensorImpl& bytes) override {
    forbid_change("changing the state");
    at::detail::check_rng_state(bytes);
    const size_t size = size_t(bytes.numel());
    TORCH_CHECK(size == sizeof(RandomSeed) || size == sizeof(uint64_t),
                "RNG state is wrong size: expected 16 bytes (seed and offset) "
                "or 8 (seed), got ",
                size);
    RandomSeed next{};
    memcpy(&next, bytes.data(), size);
    check_offset(next.offset);
    state()->set(next);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const RandomSeed next = state()->get();
    at::Tensor state = at::detail::empty_cpu({int64_t(sizeof next)}, at::kByte,
                                             {}, {}, {}, {});
    memcpy(state.mutable_data_ptr(), &next, sizeof next);
    return state.getIntrusivePtr();
  }

  // A generator that shares the state, and the choice of another's. A capture
  // may do both: a replay continues the sequences that it drew from.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<NpuGenerator>(device().index(), state());
  }
  void graphsafe_set_state(
      const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    const auto* const from = dynamic_cast<const NpuGenerator*>(other.get());
    TORCH_CHECK_TYPE(from, "graphsafe_set_state() of a generator of ", device(),
                     " needs a generator of npu, but got one of ",
                     other->device());
    TORCH_CHECK_VALUE(from->device() == device(),
                      "graphsafe_set_state() of a generator of ", device(),
                      " needs one of the same device, but got one of ",
                      from->device());
    std::shared_ptr<SeedState> chosen = from->state();
    std::lock_guard lock(choosing_);
    state_ = std::move(chosen);
  }

  std::shared_ptr<SeedState> state() const {
    std::lock_guard lock(choosing_);
    return state_;
  }

 private:
  static void check_offset(uint64_t offset) {
    TORCH_CHECK(offset % kStep == 0, "the offset must be a multiple of ", kStep,
                ", but got ", offset);
  }

  void forbid_change(const char* what) const {
    forbid_anywhere(
        std::string(what) + " of the generator of " + device().str(),
        "a replay continues the generator's sequence; seed before "
        "the capture or before a replay");
  }

  NpuGenerator* clone_impl() const override {
    auto* copy = new NpuGenerator(device().index());
    copy->state()->set(state()->get());
    return copy;
  }

  // Not mutex_: another generator reads the choice while its own is held.
  mutable std::mutex choosing_;
  std::shared_ptr<SeedState> state_;
};

// The source that a graph draws from: it keeps the state, and advances it at
// each replay.
class GraphSource final : public NumberSource {
 public:
  explicit GraphSource(std::shared_ptr<SeedState> state)
      : state_(std::move(state)) {}
  Draws reserve(uint64_t count) noexcept override {
    const RandomSeed seed = state_->reserve(count / kStep);
    return {seed.seed, seed.offset};
  }

 private:
  const std::shared_ptr<SeedState> state_;
};

// The engine of cpu's kernels, with a state of its own for each pair. Its own
// seed has 32 bits, so that launches would have numbers in common after some
// ten thousand of them. Of one seed, Philox maps different offsets to different
// states.
at::mt19937 engine_of(RandomSeed from) {
  at::mt19937_data_pod state{};
  state.seed_ = from.seed;
  state.left_ = 1;  // all of the state is used up: the first number renews it
  state.seeded_ = true;
  at::Philox4_32 random(from.seed, /*subsequence=*/from.offset);
  for (uint32_t& word : state.state_) word = random();
  at::mt19937 engine;
  engine.set_data(state);
  return engine;
}

}  // namespace

at::Generator make_generator(int device) {
  return at::make_generator<NpuGenerator>(c10::DeviceIndex(device));
}

const at::Generator& default_generator(int device) {
  static auto* const all = new std::array<at::Generator, kMaxDeviceBlocks>;
  static std::array<std::once_flag, kMaxDeviceBlocks> made;
  std::call_once(made[device],
                 [&] { (*all)[device] = make_generator(device); });
  return (*all)[device];
}

RandomSeed reserve(const std::optional<at::Generator>& generator, int device) {
  const at::Generator& chosen = generator && generator->defined()
                                    ? *generator
                                    : default_generator(device);
  TORCH_CHECK(chosen.device().type() == kNpu,
              "Expected a 'npu' device type for generator but found '",
              chosen.device().type(), "'");
  const auto state =
      static_cast<NpuGenerator*>(chosen.unsafeGetGeneratorImpl())->state();
  Capture& capture = Capture::get();
  if (capture.under_way() && current_stream(device).sink() == &capture)
      [[unlikely]] {
    const Draws place = capture.draw(
        state.get(), [&] { return std::make_unique<GraphSource>(state); },
        kStep);
    return {place.seed, place.offset};
  }
  return state->reserve(1);
}

at::Generator seeded_generator(RandomSeed seed) {
  struct Seeded {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  };
  at::Generator& generator = PerThread<Seeded>::get().generator;
  std::lock_guard lock(generator.mutex());
  if (seed.draws_as_cpu()) {
    generator.set_current_seed(seed.seed);
    return generator;
  }
  auto* const cpu = generator.get<at::CPUGeneratorImpl>();
  cpu->set_engine(engine_of(seed));
  cpu->set_next_float_normal_sample(std::nullopt);
  cpu->set_next_double_normal_sample(std::nullopt);
  return generator;
}

}  // namespace npu
