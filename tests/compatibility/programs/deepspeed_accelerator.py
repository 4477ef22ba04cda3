"""get_accelerator(): streams, events, memory, graphs, seeds; 5 training steps."""

import tiny
import torch
from deepspeed.accelerator import get_accelerator

LIBRARY = "deepspeed"
ALIAS = True


def run(device):
    accelerator = get_accelerator()
    assert accelerator.device_name() == device
    if device == "npu":
        uses_the_device(accelerator)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2).to(accelerator.device_name())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 8).to(accelerator.device_name())
    return tiny.train(optimizer, lambda: model(x).square().mean(), 5)


def uses_the_device(accelerator):
    accelerator.manual_seed_all(4)
    assert accelerator.initial_seed() == 4
    state = accelerator.get_rng_state(0)
    with accelerator.stream(accelerator.Stream()):
        event = accelerator.Event(enable_timing=True)
        x = torch.rand(1 << 20, device=accelerator.device_name(0))
        event.record()
    accelerator.synchronize()
    assert event.query() and accelerator.on_accelerator(x)
    accelerator.set_rng_state(state, 0)
    assert torch.rand(1 << 20, device="npu").equal(x)
    assert accelerator.memory_allocated() == x.nbytes
    pinned = accelerator.pin_memory(torch.ones(10))
    assert accelerator.is_pinned(pinned) and pinned.npu().sum().item() == 10
    graph, y = accelerator.create_graph(), accelerator.FloatTensor([1, 2])
    accelerator.synchronize()
    with accelerator.capture_to_graph(graph):
        z = y * 2
    y.fill_(4)
    accelerator.replay_graph(graph)
    assert z.tolist() == [8, 8]
