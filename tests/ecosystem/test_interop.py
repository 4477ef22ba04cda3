"""What leaves a tensor's process or frontend: jit, data loading, DLPack, files."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils import dlpack
from torch.utils.data import DataLoader, TensorDataset


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    ).eval()


IMAGE = torch.linspace(0, 1, 36).view(1, 1, 6, 6)


@pytest.mark.parametrize("frontend", ["trace", "script"])
def test_jit(frontend, tmp_path):
    expected = model()(IMAGE)
    make = torch.jit.script if frontend == "script" else torch.jit.trace
    given = () if frontend == "script" else (IMAGE.npu(),)
    made = make(model().npu(), *given)
    for _ in range(3):
        torch.testing.assert_close(made(IMAGE.npu()).cpu(), expected)

    made.save(str(tmp_path / "m.pt"))
    loaded = torch.jit.load(str(tmp_path / "m.pt"), map_location="npu")

    torch.testing.assert_close(loaded(IMAGE.npu()).cpu(), expected)


def test_data_loader_with_workers_and_pinned_memory():
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = DataLoader(data, 2, num_workers=2, pin_memory=True)

    got = [x.to("npu", non_blocking=True) for x, _ in loader]

    assert torch.cat(got).tolist() == list(range(8))
    assert next(iter(loader))[0].is_pinned()


def test_dlpack_shares_memory_with_a_capsule_and_without():
    x = torch.arange(4.0).npu()

    for y in (torch.from_dlpack(x), dlpack.from_dlpack(dlpack.to_dlpack(x))):
        assert y.device == x.device
        y.add_(1)
    assert x.__dlpack_device__() == (dlpack.DLDeviceType.kDLExtDev, 0)
    assert x.tolist() == [2, 3, 4, 5]
    assert torch.from_dlpack(x, device="cpu").tolist() == [2, 3, 4, 5]
    assert torch.from_dlpack(torch.ones(2), device="npu").tolist() == [1, 1]
    assert torch.ones(1).__dlpack_device__()[0] == 1  # the host's own


@pytest.mark.parametrize("weights_only", [True, False])
def test_save_and_load(weights_only):
    state = {"w": torch.arange(3.0).npu(), "t": torch.eye(2).bfloat16().npu()}
    state["view"] = state["w"][1:]
    file = io.BytesIO()
    torch.save(state, file)

    for location, kind in [(None, "npu"), ("cpu", "cpu"), ("npu:0", "npu")]:
        file.seek(0)
        loaded = torch.load(file, map_location=location, weights_only=weights_only)
        assert {v.device.type for v in loaded.values()} == {kind}
        assert loaded["w"].tolist() == [0, 1, 2]
        loaded["w"].add_(1)
        assert loaded["view"].tolist() == [2, 3], "still a view"
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    assert torch.load(file, map_location="npu").device.type == "npu"


def test_copies_and_pickles():
    layer = nn.Linear(2, 2).npu()

    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.weight.device.type == "npu"
        assert torch.equal(twin.weight, layer.weight)
        assert twin.weight.data_ptr() != layer.weight.data_ptr()


def test_a_storage_knows_its_device():
    storage = torch.arange(3.0).npu().untyped_storage()

    assert storage.device.type == "npu"
    assert storage.cpu().nbytes() == 12
    assert copy.deepcopy(storage).device.type == "npu"
