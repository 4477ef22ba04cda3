// Gives the nodes of a graph plans of their own.
#pragma once

namespace npu {

// Called once, while the module is loaded.
void register_graph_kernels();

}  // namespace npu
