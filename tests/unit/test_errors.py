"""A failure stays an error of its stream until it is cleared, and names its line."""

import functools
import inspect
import itertools
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from held_stream import Held

import npu_dispatch
from npu_dispatch import _C
from npu_dispatch.npu.runtime import device_error as errors


@pytest.fixture
def failed():
    """The default stream, failed by an embedding index out of range."""
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    torch.npu.synchronize()
    F.embedding(index, weight)
    yield
    torch.npu.clear_error()


def test_it_stays_until_cleared(failed):
    x = torch.empty(0)
    for _ in range(2):
        with pytest.raises(IndexError):
            torch.npu.synchronize()
    with pytest.raises(IndexError):
        x = torch.ones(2, device="npu")
    with pytest.raises(IndexError):
        torch.npu.current_stream().synchronize()
    error = torch.npu.stream_error()
    assert "embedding" in error["op"] and error["stream"] == 0
    assert "out of range" in error["text"]

    torch.npu.clear_error()

    assert torch.npu.stream_error() is None

    x = torch.ones(2, device="npu")
    assert x.sum().item() == 2


def test_the_message_names_the_stream_that_is_to_be_cleared():
    side = torch.npu.Stream()
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        F.embedding(index, weight)
    with pytest.raises(IndexError) as caught:
        side.synchronize()
    torch.npu.clear_error()  # of the current stream, which has not failed
    assert torch.npu.stream_error(side) is not None
    assert f"Stream {side.stream_id} of npu:0 accepts no more" in str(caught.value)

    torch.npu.clear_error(side)

    side.synchronize()


def test_another_stream_is_not_concerned(failed):
    other = torch.npu.Stream()

    with torch.npu.stream(other):
        x = torch.ones(2, device="npu") + 1
        other.synchronize()
        assert x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("hops", [1, 2])
def test_a_stream_that_waited_names_what_failed_first_and_its_line(hops):
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    streams = [torch.npu.Stream() for _ in range(hops + 1)]
    streams[0].wait_stream(torch.npu.current_stream())
    # Held: a stream that is known to have failed accepts no event.
    with Held(streams[0]):
        with torch.npu.stream(streams[0]):
            F.embedding(index, weight)
            line = sys._getframe().f_lineno - 1
        for before, behind in itertools.pairwise(streams):
            behind.wait_stream(before)

    with pytest.raises(IndexError) as caught:
        streams[-1].synchronize()

    text, cause = str(caught.value), caught.value.__cause__
    assert f"launched at {__file__}:{line}" in text
    assert text.count("which has failed") == 1
    assert (cause.op, cause.stream) == ("aten::embedding", streams[0].stream_id)
    assert (__file__, line) in [(f.filename, f.lineno) for f in cause.launch_stack]
    for stream in streams:
        torch.npu.clear_error(stream)


def bad_inputs():
    # No fixture: pytest would keep it until the leaks have been looked for.
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    torch.npu.synchronize()
    return weight, index


def line_here(offset: int) -> str:
    frame = inspect.currentframe().f_back
    return f"{__file__}:{frame.f_lineno + offset} in {frame.f_code.co_qualname}"


def test_the_exception_names_the_launching_line(reset):
    weight, index = bad_inputs()
    expected = line_here(1)
    F.embedding(index, weight)

    with pytest.raises(torch.npu.DeviceError) as caught:
        torch.npu.synchronize()

    error = caught.value
    assert f"launched at {expected}" in str(error)
    assert error.op == "aten::embedding"
    assert (error.device, error.stream) == (0, 0)
    assert error.arguments == "[4, 2] [1] [1, 2]"
    assert "index out of range" in error.text
    assert isinstance(error, torch.AcceleratorError)  # and so a RuntimeError
    assert isinstance(error, IndexError) and isinstance(error, errors.DeviceIndexError)
    innermost = error.launch_stack[-1]
    assert innermost.name == "embedding"  # torch.nn.functional's
    mine = [f for f in error.launch_stack if f.filename == __file__]
    assert f"{__file__}:{mine[-1].lineno}" in expected
    assert not error.forward_stack


def test_each_line_of_a_loop_is_its_own(reset):
    weight, index = bad_inputs()
    good = torch.tensor([1]).npu()
    with Held():  # a stream that has failed takes no more work
        for i in [good, good, index, good]:
            F.embedding(i, weight)
    expected = line_here(-1)

    with pytest.raises(torch.npu.DeviceError, match="launched at") as caught:
        torch.npu.synchronize()

    assert expected in str(caught.value)


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, index):
        ctx.save_for_backward(weight, index)
        return x + 0  # a launch of the node's own

    @staticmethod
    def backward(ctx, gradient):
        F.embedding(*reversed(ctx.saved_tensors))
        return gradient, None, None


def test_a_backward_task_names_its_forward_line(reset):
    x = torch.rand(4, 4).npu().requires_grad_()
    bad = bad_inputs()
    expected = line_here(1)
    y = FailsInBackward.apply(x * 2, *bad)
    loss = y.sum()

    with pytest.raises(torch.npu.DeviceError) as caught:
        loss.backward()
        torch.npu.synchronize()

    text = str(caught.value)
    assert "FailsInBackward.backward" in text
    assert "in the backward of the call at" in text
    assert any(
        f"{frame.filename}:{frame.lineno} in " in expected
        for frame in caught.value.forward_stack
    )


def test_another_thread_has_its_own_stack(reset):
    weight, index = bad_inputs()

    def worker():
        F.embedding(index, weight)

    with ThreadPoolExecutor() as pool:
        pool.submit(worker)

    with pytest.raises(torch.npu.DeviceError, match=r"in .*worker"):
        torch.npu.synchronize()


def test_stacks_are_told_apart_and_kept():
    def site():
        return _C.current_call_site()

    first, second = site(), site()
    again = [site() for _ in range(2)]

    assert first != second
    assert again[0] == again[1] != first
    names = [function for _, _, function in _C.call_stack(first)]
    assert names[0].endswith("site")
    assert names[1] == inspect.currentframe().f_code.co_qualname
    assert _C.call_stack(0) == []
    assert _C.call_line(0) == ""


def line_of_a_launch(*files: str) -> str:
    """Return what is told of a launch in functions of `files`, innermost first."""
    launch = _C.current_call_site
    for file in files:
        scope: dict[str, object] = {}
        exec(compile("def call(f):\n    return f()\n", file, "exec"), scope)
        launch = functools.partial(scope["call"], launch)
    # The thread's own frames are the standard library's.
    with ThreadPoolExecutor() as pool:
        return _C.call_line(pool.submit(launch).result())


def test_an_installed_package_is_named_where_the_user_has_no_line():
    package = sysconfig.get_paths()["purelib"] + "/somebodys/layers.py"
    inside = str(Path(torch.__file__).parent / "nn" / "functional.py")

    user = line_of_a_launch(inside, package, "/home/me/train.py")
    nobody = line_of_a_launch(inside, package)

    assert user == "/home/me/train.py:2 in call"
    assert nobody == f"{package}:2 in call"


def test_code_that_is_gone_keeps_its_stack():
    source = "def f(site):\n\n    return site()\n"
    sites = set()
    for i in range(20):
        space: dict[str, object] = {}
        exec(compile(source, f"gone_{i}.py", "exec"), space)
        sites.add(space["f"](_C.current_call_site))
        del space

    lines = {_C.call_line(site) for site in sites}
    assert lines == {f"gone_{i}.py:3 in f" for i in range(20)}


def test_a_reset_device_works_again(reset):
    weight, index = bad_inputs()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        F.embedding(index, weight)
    F.embedding(index, weight)

    torch.npu.reset_device()

    torch.npu.synchronize()
    with torch.npu.stream(stream):
        assert torch.ones(2, device="npu").sum().item() == 2


def test_no_file_of_this_package_is_the_users():
    package = f"{Path(npu_dispatch.__file__).parent}/"

    assert (package, False) in torch.npu.frame_origins()
