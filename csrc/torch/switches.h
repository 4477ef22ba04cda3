// torch's switches that are global to the process and that kernels read. Queued
// work runs under the switches of its launch.
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
  // Sets the switches that differ. No kernel that reads them may be running.
  void apply() const;
  bool operator==(const Switches&) const = default;

  c10::ScalarType default_dtype;
  bool deterministic, warn_only, fill_uninitialized;
  bool mkldnn, mkldnn_deterministic, nnpack, reduced_fp16;
  at::QEngine quantized;
  std::array<at::Float32Precision, 3> precision;  // conv, rnn, matmul
};

// To be called when a switch has changed.
void note_switch_change();

// Waits for everything that is queued anywhere, before something changes that
// queued kernels read. Does not look at errors. Gives up, and returns, the
// streams that nothing in this process has let go on for `patience_ns`.
std::vector<const Stream*> finish_launched(uint64_t patience_ns);

// Notes the switches where a capture begins.
void note_switches(Graph& graph);
// Whether the switches are now those of the graph's capture.
bool has_its_switches(Graph& graph);
// Calls `replay` under the switches of the capture; the host waits before and
// behind it.
void replay_under_its_switches(Graph& graph, void (*replay)(Graph&));

}  // namespace npu
