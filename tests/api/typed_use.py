"""A user's program as `make lint` type-checks it. It is not run."""

import torch

from npu_dispatch import npu


@npu.mstx.mstx_range("r")
def marked(x: int) -> int:
    return x


def streams_and_events() -> None:
    stream: npu.Stream = npu.Stream(priority=-1)
    event = npu.Event(enable_timing=True, blocking=True)
    with npu.stream(stream), npu.device(0):
        event.record()
    milliseconds: float = event.elapsed_time(event)
    where: torch.device | None = event.device
    external = npu.ExternalEvent()
    external.record(stream)
    external.wait()
    npu.ExternalStream(3).synchronize()
    print(milliseconds, where, stream.npu_stream, npu.SyncLaunchStream().query())


def memory() -> None:
    number: int = npu.memory_allocated() + npu.memory_stats()["num_ooms"]
    free, total = npu.mem_get_info()
    allocator = npu.NPUPluggableAllocator("lib.so", "take", "give")
    allocator.allocator().set_init_fn(0)
    with npu.use_mem_pool(npu.MemPool(allocator.allocator())):
        tensor: torch.Tensor = npu.FloatTensor([1.0])
    failed: type[RuntimeError] = npu.OutOfMemoryError
    print(number, free, total, tensor, failed)


def devices() -> None:
    properties: npu.DeviceProperties = npu.get_device_properties()
    capability: tuple[int, int] | None = npu.get_device_capability()
    generators: tuple[torch.Generator, ...] = npu.default_generators
    npu.random.manual_seed(3)
    print(properties, capability, generators, npu.utilization(0))


def the_rest() -> None:
    npu.mstx.mark("x", npu.current_stream())
    number: int = marked(3) + npu.mstx.range_start("x") + npu.nvtx.range_push("a")
    with npu.nvtx.range("a"), npu.aclnn.flags(allow_hf32=True):
        npu.matmul.allow_hf32 = True
        npu.config.allow_internal_format = False
    with npu.graph(npu.NPUGraph(), pool=npu.graph_pool_handle()):
        pass
    with npu.amp.autocast(dtype=torch.bfloat16):
        npu.amp.GradScaler()
    copies = npu.comm.broadcast(torch.ones(1), [0])
    result: torch.Tensor = npu.jiterator._create_jit_fn("...", a=1)(copies[0])
    bad: bool = npu.utils.npu_check_overflow(result)
    npu.set_option({"ACL_AICORE_NUM": 3})
    print(number, bad)
