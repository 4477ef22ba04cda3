#include "csrc/torch/switches.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/engine/engine.h"
#include "csrc/interop/flag.h"
#include "csrc/taskqueue/host_wait.h"

namespace npu {
namespace {

using at::Float32Backend;
using at::Float32Op;

constexpr Float32Op kOps[] = {Float32Op::CONV, Float32Op::RNN,
                              Float32Op::MATMUL};

// Relaxed everywhere: a thread that changes a switch sees its own change, and
// other threads have to synchronise with it in another way anyway.
std::atomic<uint64_t> changes_{1};

constexpr uint64_t kPatienceNs = 5'000'000'000;

const Switches& switches_of(const Graph& graph) {
  return *static_cast<const Switches*>(graph.noted.what.get());
}

}  // namespace

Switches Switches::now() {
  const at::Context& context = at::globalContext();
  Switches s{};
  s.default_dtype = c10::get_default_dtype_as_scalartype();
  s.deterministic = context.deterministicAlgorithms();
  s.warn_only = context.deterministicAlgorithmsWarnOnly();
  s.fill_uninitialized = context.deterministicFillUninitializedMemory();
  s.mkldnn = context.userEnabledMkldnn();
  s.mkldnn_deterministic = context.deterministicMkldnn();
  s.nnpack = context.userEnabledNNPACK();
  s.reduced_fp16 = context.allowFP16ReductionCPU();
  s.quantized = context.qEngine();
  for (size_t i = 0; i < std::size(kOps); ++i)
    s.precision[i] = context.float32Precision(Float32Backend::MKLDNN, kOps[i]);
  return s;
}

void Switches::apply() const {
  at::Context& context = at::globalContext();
  const Switches s = now();
  if (default_dtype != s.default_dtype)
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
  if (deterministic != s.deterministic || warn_only != s.warn_only)
    context.setDeterministicAlgorithms(deterministic, warn_only);
  if (fill_uninitialized != s.fill_uninitialized)
    context.setDeterministicFillUninitializedMemory(fill_uninitialized);
  if (mkldnn != s.mkldnn) context.setUserEnabledMkldnn(mkldnn);
  if (mkldnn_deterministic != s.mkldnn_deterministic)
    context.setDeterministicMkldnn(mkldnn_deterministic);
  if (nnpack != s.nnpack) context.setUserEnabledNNPACK(nnpack);
  if (reduced_fp16 != s.reduced_fp16)
    context.setAllowFP16ReductionCPU(reduced_fp16);
  if (quantized != s.quantized) context.setQEngine(quantized);
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (precision[i] != s.precision[i])
      context.setFloat32Precision(Float32Backend::MKLDNN, kOps[i],
                                  precision[i]);
}

void note_switch_change() { changes_.fetch_add(1, std::memory_order_relaxed); }

std::vector<const Stream*> finish_launched(uint64_t patience_ns) {
  std::vector<const Stream*> given_up;
  if (!initialized() || in_bad_fork()) return given_up;
  for (Stream* s : all_streams()) {
    uint64_t since = 0;
    const auto goes_on = [&] {
      const uint64_t now = now_ns();
      const Stream* const held = held_by_nobody(*s);
      if (!held || !since) since = now;
      if (!held) return true;
      return now - since <
             (waits_for_processes(*held) ? kPatienceNs : patience_ns);
    };
    if (!host_wait_while(*s, s->tail(), WaitReason::kDeviceSync, goes_on))
      given_up.push_back(s);
  }
  return given_up;
}

void note_switches(Graph& graph) {
  graph.noted = {std::make_shared<const Switches>(Switches::now()),
                 changes_.load(std::memory_order_relaxed)};
}

bool has_its_switches(Graph& graph) {
  const uint64_t now = changes_.load(std::memory_order_relaxed);
  if (graph.noted.number == now || !graph.noted.what) [[likely]]
    return true;
  if (switches_of(graph) != Switches::now()) return false;
  graph.noted.number = now;
  return true;
}

void replay_under_its_switches(Graph& graph, void (*replay)(Graph&)) {
  struct Restored {
    const Switches before = Switches::now();
    ~Restored() { before.apply(); }
  };
  constexpr const char* kHeld =
      "npu: a graph that was captured under other switches (deterministic "
      "mode, "
      "torch.backends.mkldnn and the like) is replayed while a stream waits "
      "for "
      "an event that nobody has recorded";
  if (!finish_launched(kPatienceNs).empty()) {
    TORCH_WARN(kHeld, ": the replay runs under today's switches");
    return replay(graph);
  }
  Restored restored;
  switches_of(graph).apply();
  replay(graph);
  if (!finish_launched(kPatienceNs).empty())
    TORCH_WARN(kHeld, ": the rest of it runs under today's switches");
}

}  // namespace npu
