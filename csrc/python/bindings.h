// The parts of the module npu_dispatch._C, whose contract is
// npu_dispatch/_C.pyi.
#pragma once

#include <pybind11/pybind11.h>

namespace at {
class Tensor;
}

namespace npu {

class Event;
class Graph;

// The event whose torch.Event has this id; null: it has not been recorded.
// Throws for an interprocess event, which is no Event; ids of those are odd.
const Event* event_at(int64_t id);

// replay(), without the GIL where it takes a lock that other threads hold while
// they wait for space in a queue.
void replay_graph(Graph& graph);

void bind_aio(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_distributed(pybind11::module_& m);
void bind_empty_strided(pybind11::module_& m);
void bind_errors(pybind11::module_& m);
void bind_foreign(pybind11::module_& m);
void bind_graph(pybind11::module_& m);
void bind_flags(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_plan(pybind11::module_& m);
void bind_queue_cost(pybind11::module_& m);
void bind_replayed(pybind11::module_& m);
void bind_sanitizer(pybind11::module_& m);
void bind_schedule(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
void bind_memory_pools(pybind11::module_& m);
void bind_shared_memory(pybind11::module_& m);
void bind_stats(pybind11::module_& m);
void bind_sync_watch(pybind11::module_& m);
void bind_watch(pybind11::module_& m);
void bind_word_kernel(pybind11::module_& m);

// Let waits release the GIL and obey Ctrl-C, and tell Python about them.
void install_wait_hooks();
// Let a failed task raise its exception, and note where tasks are launched.
void install_error_hooks();
// Records a Python exception that leaves a task as the task's failure.
void install_exception_hook();

}  // namespace npu
