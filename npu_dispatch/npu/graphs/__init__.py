"""torch.npu.graphs: work captured once and replayed, as torch.cuda.graphs."""

from npu_dispatch.npu.graphs.capture import (
    NPUGraph,
    PoolHandle as PoolHandle,
    TaskGroupHandle,
    graph,
    graph_pool_handle,
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
    is_current_stream_capturing,
)

__all__ = [
    "NPUGraph",
    "TaskGroupHandle",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
]
