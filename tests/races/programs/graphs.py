"""Replays: to other streams, one task that touches what the graph does."""

import torch
from counted_replays import Counted

npu = torch.npu


def doubling():
    """Return a graph, its input and its output; nothing of it is pending."""
    x = torch.zeros(100, device="npu")
    graph = npu.NPUGraph()
    with npu.graph(graph, check_input_liveness=False):
        half = x + 0
        y = half * 2
        del half
    npu.synchronize()
    return graph, x, y


def racy_input_changes_during_a_replay():
    "read/write"
    graph, x, y = doubling()
    s = npu.Stream()
    graph.replay()  # first: aten::add.Tensor
    with npu.stream(s):
        x.fill_(1)  # second: aten::fill_.Scalar
    return graph, y


def correct_input_changes_after_a_replay():
    graph, x, y = doubling()
    s = npu.Stream()
    graph.replay()
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.fill_(1)
    npu.current_stream().wait_stream(s)
    graph.replay()
    return graph, y


def racy_output_is_read_during_a_replay():
    "read/write"
    graph, x, y = doubling()
    s = npu.Stream()
    graph.replay()  # first: aten::mul.Tensor
    with npu.stream(s):
        y + 1  # second: aten::add.Tensor
    return graph, x


def correct_output_is_read_after_an_event():
    graph, x, y = doubling()
    s = npu.Stream()
    graph.replay()
    s.wait_event(npu.current_stream().record_event())
    with npu.stream(s):
        z = y + 1
    npu.current_stream().wait_stream(s)
    return graph, x, z


def racy_replay_before_its_input_is_written():
    "read/write"
    graph, x, y = doubling()
    s = npu.Stream()
    with npu.stream(s):
        x.fill_(1)  # first: aten::fill_.Scalar
    graph.replay()  # second: aten::add.Tensor
    return graph, y


def racy_input_was_freed():
    "use-after-free"
    graph, x, y = doubling()
    del x  # first: free
    graph.replay()  # second: aten::add.Tensor
    return graph, y


def correct_intermediate_was_freed_while_capturing():
    graph, x, y = doubling()
    for _ in range(3):
        x.add_(1)
        graph.replay()
    return graph, y


def correct_streams_of_one_capture():
    x = torch.zeros(100, device="npu")
    s = npu.Stream()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        s.wait_stream(npu.current_stream())
        with npu.stream(s):
            y = x + 1
        npu.current_stream().wait_stream(s)
        z = y * 2
    for _ in range(3):
        x.add_(1)
        graph.replay()
    z.sum()
    return graph, y


def tripling_once(done):
    """Return a graph that waits for the event, its input and its output."""
    x = torch.ones(100, device="npu")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        done.wait()
        y = x * 3
    npu.synchronize()
    return graph, x, y


def correct_replay_waits_for_an_external_event():
    s, done = npu.Stream(), npu.ExternalEvent()
    graph, x, y = tripling_once(done)
    with npu.stream(s):
        x.fill_(2)
        done.record()
    graph.replay()
    npu.synchronize()
    return graph, y


def correct_external_event_is_recorded_after_the_replay():
    s, done = npu.Stream(), npu.ExternalEvent()
    graph, x, y = tripling_once(done)
    graph.replay()
    with npu.stream(s):
        x.fill_(2)
        done.record()
    npu.synchronize()
    return graph, y


def racy_external_event_is_recorded_before_the_write():
    "read/write"
    s, done = npu.Stream(), npu.ExternalEvent()
    graph, x, y = tripling_once(done)
    with npu.stream(s):
        done.record()
        x.fill_(2)  # first: aten::fill_.Scalar
    graph.replay()  # second: aten::mul.Tensor
    return graph, y


def correct_replay_records_an_external_event():
    s, done = npu.Stream(), npu.ExternalEvent()
    x = torch.ones(100, device="npu")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        y = x * 3
        done.record()
    npu.synchronize()
    graph.replay()
    done.wait(s)
    with npu.stream(s):
        z = y + 1
    npu.synchronize()
    return graph, z


def two_of_one_pool():
    """Return two graphs, the results of both, and the input.

    The second one's result lies where the first one computes.
    """
    x = torch.ones(1000, device="npu")
    one, two = npu.NPUGraph(), npu.NPUGraph()
    with npu.graph(one):
        y = x * 2 + 1
    with npu.graph(two, pool=one.pool()):
        z = x / 3
    npu.synchronize()
    return one, two, y, z, x


def racy_result_is_read_behind_an_earlier_graph_of_its_pool():
    "overwritten-result"
    one, two, y, z, x = two_of_one_pool()
    two.replay()
    one.replay()  # first: aten::mul.Tensor
    z.sum()  # second: aten::sum.dim_IntList
    return one, two, y, x


def racy_result_is_copied_to_the_host_behind_an_earlier_graph():
    "overwritten-result"
    one, two, y, z, x = two_of_one_pool()
    two.replay()
    one.replay()  # first: aten::mul.Tensor
    z.cpu()  # second: aten::copy_|memcpy
    return one, two, y, x


def racy_graph_reads_a_result_behind_an_earlier_one():
    "overwritten-result"
    one, two, y, z, x = two_of_one_pool()
    three = npu.NPUGraph()
    with npu.graph(three, pool=one.pool()):
        total = z - y
    two.replay()
    one.replay()  # first: aten::mul.Tensor
    three.replay()  # second: aten::sub.Tensor
    return one, two, three, total, x


def correct_graphs_of_one_pool_in_the_order_of_their_captures():
    one, two, y, z, x = two_of_one_pool()
    three = npu.NPUGraph()
    with npu.graph(three, pool=one.pool()):
        total = z - y
        z.add_(1)
        z.sum()
    for _ in range(3):
        x.add_(1)
        one.replay()
        two.replay()
        z.sum()
        three.replay()
        (z + total + y).cpu()
    return one, two, three, x


def correct_overwritten_result_is_written_before_it_is_read():
    one, two, y, z, x = two_of_one_pool()
    two.replay()
    one.replay()
    z.zero_()
    z.sum()
    one.replay()
    two.replay()
    z.sum()
    one.replay()
    del z
    again = torch.ones(1000, device="npu")
    return one, two, y, x, again.sum()


def correct_graphed_callables_add_up_gradients():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)
    ).npu()
    between = torch.zeros(4, 16, device="npu", requires_grad=True)
    samples = (torch.zeros(4, 8, device="npu"),), (between,)
    parts = (torch.nn.Sequential(model[0], model[1]), model[2])
    first, second = npu.make_graphed_callables(parts, samples)
    for _ in range(3):
        for _ in range(2):
            x = torch.ones(4, 8, device="npu")
            second(first(x)).square().sum().backward()
        for p in model.parameters():
            p.grad.sum()
            p.grad = None
    return model, parts, samples


def correct_functions_that_share_the_memory_of_their_replays():
    one = Counted(lambda x: (x @ x).sin() @ (x + 1))
    two = Counted(lambda x: (x @ x, x.cos()))
    kept = []
    for i in range(6):
        x = torch.full((48, 48), float(i), device="npu")
        y, (z, w) = one(x), two(x)
        one(x)
        kept.append((y + z + w).sum())
        if i % 2:
            kept += [y, z]
    return kept
