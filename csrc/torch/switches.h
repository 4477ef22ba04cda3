// torch's switches that are global to the process and that kernels read: what
// they are, and that queued work runs under those of its launch.
#pragma once

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <vector>

#include "csrc/graph/graph.h"

namespace npu {

class Stream;

struct Switches {
  static Switches now();
  // Sets what is different. Nothing that reads them may be under way.
  void apply() const;
  bool operator==(const Switches&) const = default;

  c10::ScalarType default_dtype;
  bool deterministic, warn_only, fill_uninitialized;
  bool mkldnn, mkldnn_deterministic, nnpack, reduced_fp16;
  at::QEngine quantized;
  std::array<at::Float32Precision, 3> precision;  // of conv, rnn, matmul
};

// To be called when one of them has changed.
void note_switch_change();

// Waits for what is queued anywhere, and looks at no error: before something
// changes that queued kernels read. Gives streams up that nothing in this
// process lets go on for `patience_ns`, and returns those.
std::vector<const Stream*> finish_launched(uint64_t patience_ns);

// Notes them where a capture begins.
void note_switches(Graph& graph);
// Whether a replay now would run under those of its capture.
bool has_its_switches(Graph& graph);
// Calls `replay` under them; the host waits before and behind it.
void replay_under_its_switches(Graph& graph, void (*replay)(Graph&));

}  // namespace npu
