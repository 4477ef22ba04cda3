"""Sparse tensors, COO and compressed, on npu: results and errors of cpu's."""

import copy
import io
import pickle

import pytest
import torch
from host_waits import host_waits
from torch import nn

from tests.ecosystem.both import both

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support:UserWarning")

INDICES = torch.tensor([[0, 2, 2, 0], [1, 0, 3, 1]])  # one of them twice
VALUES = torch.tensor([1.0, 2.0, -3.0, 4.0])
DENSE = torch.tensor([[0.0, 5.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 3.0, 0.0]])
OTHER = torch.arange(12.0).reshape(3, 4) - 5
COMPRESSED = [
    lambda d: d.to_sparse_csr(),
    lambda d: d.to_sparse_csc(),
    lambda d: d.to_sparse_bsr((1, 2)),
    lambda d: d.to_sparse_bsc((3, 2)),
]
ALL = [lambda d: d.to_sparse(), *COMPRESSED]
NAMES = ["coo", "csr", "csc", "bsr", "bsc"]


def coo(device="cpu"):
    return torch.sparse_coo_tensor(INDICES.to(device), VALUES.to(device), (3, 4))


def parts(t):
    """All that a sparse tensor holds."""
    if t.layout == torch.sparse_coo:
        return t._indices(), t._values()
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return t.crow_indices(), t.col_indices(), t.values()
    return t.ccol_indices(), t.row_indices(), t.values()


def test_construction_from_lists_and_of_empty_tensors():
    def run(x):
        made = {"device": x.device, "dtype": x.dtype}
        a = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), **made)
        b = torch.sparse_coo_tensor(size=(2, 3), **made)
        c = torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2), **made)
        e = torch.zeros(3, 4, layout=torch.sparse_coo, **made)
        f = torch.zeros(3, 4, layout=torch.sparse_csr, **made)
        return a, b, c, e, f, torch.zeros_like(a), torch.empty_like(c).shape

    both(run, torch.ones(1))


@pytest.mark.parametrize("convert", ALL, ids=NAMES)
def test_conversion_copies_between_devices_and_text(convert):
    def run(d):
        s = convert(d)
        # A compressed layout is made of the other one, too.
        again = convert(d.to_sparse()).to_dense() if convert in COMPRESSED else d
        return s, *parts(s), s.to_dense(), s._nnz(), s.to_sparse(), again

    both(run, DENSE)
    s = convert(DENSE)

    n = s.to("npu")

    assert n.device.type == "npu" and n.layout == s.layout
    for mine, theirs in zip(parts(n), parts(s), strict=True):
        assert mine.device.type == "npu"
        assert torch.equal(mine.cpu(), theirs)
    assert torch.equal(n.cpu().to_dense(), DENSE)
    assert torch.equal(n.double().cpu().to_dense(), DENSE.double())
    assert "device='npu:0'" in repr(n)
    assert repr(n).replace("device='npu:0', ", "") == repr(s)


def test_the_order_of_indices_is_checked_as_on_cpu():
    indices = torch.tensor([[0, 0, 2], [1, 3, 0]])

    def made(order, device):
        parts = indices[:, order].to(device), VALUES[:3].to(device), (3, 4)
        checks = {"is_coalesced": True, "check_invariants": True}
        return torch.sparse_coo_tensor(*parts, **checks)

    for device in ("cpu", "npu"):
        assert made([0, 1, 2], device).to_dense()[0, 3].item() == 2
        with pytest.raises(RuntimeError, match="is_coalesced"):
            made([1, 0, 2], device)


@pytest.mark.parametrize("convert", ALL, ids=NAMES)
def test_deepcopy_pickle_and_save(convert):
    s = convert(DENSE).npu()
    file = io.BytesIO()
    torch.save({"s": s}, file)
    for place in (None, "npu", "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=place)["s"]
        assert loaded.device.type == (place or "npu")
        assert loaded.layout == s.layout
        assert torch.equal(loaded.cpu().to_dense(), DENSE)

    for twin in (copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.clone()):
        assert twin.device == s.device and twin.layout == s.layout
        parts(twin)[-1].mul_(2)
        assert torch.equal(twin.cpu().to_dense(), 2 * DENSE)
    assert torch.equal(s.cpu().to_dense(), DENSE)


def test_coalesce_sums_in_order():
    def run(i, v):
        s = torch.sparse_coo_tensor(i, v)
        c = s.coalesce()
        told = s.shape, s._nnz(), s.is_coalesced(), s.sparse_dim(), s.dense_dim()
        return told, c.indices(), c.values(), c.is_coalesced(), c._nnz()

    both(run, INDICES, VALUES)


# Of both layouts.
CALLS = {
    "add": lambda s, d: s + s,
    "neg": lambda s, d: -s,
    "abs": lambda s, d: s.abs(),
    "mul": lambda s, d: s * s,
    "mm": lambda s, d: torch.sparse.mm(s, d.t()),
    "matmul": lambda s, d: s @ d.t(),
    "mv": lambda s, d: s @ d[0],
    "transpose": lambda s, d: s.t(),
    "double": lambda s, d: s.double(),
}
COO_CALLS = {
    **CALLS,
    "sub": lambda s, d: s - 2 * s,
    "mul_dense": lambda s, d: s * d,
    "dense_mul": lambda s, d: d * s,
    "dense_add": lambda s, d: d + s,
    "scale": lambda s, d: s * 3 / 2,
    "sqrt": lambda s, d: s.abs().sqrt(),
    "pow": lambda s, d: s.coalesce() ** 2,
    "relu": lambda s, d: torch.relu(s),
    "sparse_mm": lambda s, d: torch.sparse.mm(s, s.t().coalesce()),
    "addmm": lambda s, d: torch.sparse.addmm(torch.ones(3, 3).to(d), s, d.t()),
    "bmm": lambda s, d: torch.bmm(torch.stack([s, s]), torch.stack([d.t(), d.t()])),
    "sum": lambda s, d: torch.sparse.sum(s),
    "sum_dim": lambda s, d: torch.sparse.sum(s, 0),
    "softmax": lambda s, d: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s, d: torch.sparse.log_softmax(s, 0),
    "permute": lambda s, d: s.permute(1, 0),
    "unsqueeze": lambda s, d: s.unsqueeze(0),
    "select": lambda s, d: s[2],
    "index_select": lambda s, d: s.index_select(0, torch.tensor([2, 0]).to(d.device)),
    "narrow": lambda s, d: s.narrow_copy(1, 1, 2),
    "cat": lambda s, d: torch.cat([s, s], 1),
    "mask": lambda s, d: d.sparse_mask(s.coalesce()),
    "norm": lambda s, d: s.norm(),
    "any": lambda s, d: s.any(),
    "hybrid": lambda s, d: torch.stack([d, -d]).to_sparse(1) * 2,
    "isnan": lambda s, d: s.isnan(),
}


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 1), (2, 3)), ((3,), (2, 3)), ((1, 4, 1), (3, 4, 5))]
)
def test_values_that_broadcasting_expands_share_their_memory(shape, size):
    # One sparse dimension: the others are of the values, whose stride is 0 then.
    cpu = torch.ones(shape).to_sparse(1)

    want = torch._sparse_broadcast_to(cpu, size)
    got = torch._sparse_broadcast_to(cpu.npu(), size)

    assert got._values().stride() == want._values().stride()
    assert torch.equal(got._indices().cpu(), want._indices())
    assert torch.equal(got.to_dense().cpu(), want.to_dense())
    assert torch.equal((got * 2).to_dense().cpu(), want.to_dense() * 2)


def test_operators_on_coo():
    def run(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (3, 4))
        return {name: call(s, d) for name, call in COO_CALLS.items()}

    both(run, INDICES, VALUES, OTHER)


CSR_CALLS = {
    **CALLS,
    "scale": lambda s, d: s * 3,
    "sin": lambda s, d: s.sin(),
    "dense_matmul": lambda s, d: d.t() @ s,
    "addmm": lambda s, d: torch.addmm(torch.ones(3, 3).to(d), s, d.t()),
    "sampled": lambda s, d: torch.sparse.sampled_addmm(s, d, d.t() @ d),
    "sum": lambda s, d: s.sum(),
    "sum_dim": lambda s, d: s.sum(0, keepdim=True),
    "select": lambda s, d: s[1],
    "reduce": lambda s, d: torch.sparse.mm(s, d.t().contiguous(), "max"),
    "mask": lambda s, d: d.sparse_mask(s),
}


def test_operators_on_csr():
    def run(d, o):
        return {name: call(d.to_sparse_csr(), o) for name, call in CSR_CALLS.items()}

    both(run, DENSE, OTHER)


def test_bsr_times_dense():
    both(lambda d, o: d.t().to_sparse_bsr((1, 1)) @ o, DENSE, OTHER)


def test_in_place_calls_change_the_tensor_and_its_nnz():
    def run(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (3, 4))
        before = s._nnz()
        s.add_(d.to_sparse())
        after = s._nnz()
        s.mul_(2)
        t = s.coalesce()
        t.neg_()
        u = torch.sparse_coo_tensor(i, v, (3, 4)).zero_()
        copied = torch.zeros(3, 4, layout=torch.sparse_coo, device=d.device).copy_(t)
        c = d.to_sparse_csr()
        c.mul_(3)
        dense = d.clone()
        dense.add_(s, alpha=0.5)
        return before, after, s, t, u, u._nnz(), copied, c, dense

    both(run, INDICES, VALUES, DENSE)


def test_out_arguments():
    def run(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (3, 4))
        out = torch.zeros(3, 4, layout=torch.sparse_coo, device=d.device)
        assert torch.add(s, s, out=out) is out
        dense = torch.empty(0, device=d.device)
        assert torch.mm(s, d.t(), out=dense) is dense
        csr = d.to_sparse_csr()
        torch.neg(csr, out=csr)
        return out, dense, csr

    both(run, INDICES, VALUES, OTHER)


def test_a_view_of_the_values_is_theirs():
    s = coo("npu").coalesce()

    s.values().mul_(10)

    assert torch.equal(s.cpu().to_dense(), 10 * coo().to_dense())


# Calls of indices, values and a dense tensor.
GRADIENTS = """
torch.sparse.mm(s, d.t())
s.to_dense() * d
torch.sparse.sum(s)
torch.sparse.softmax(s, 1).to_dense()
d + s
s.coalesce().values()
d.to_sparse().to_dense() * 2
d.to_sparse_csr() @ v
torch.sparse.mm(d.to_sparse_csr(), d.t() * v.sum(), "amax")
"""


@pytest.mark.parametrize("call", GRADIENTS.strip().splitlines())
def test_gradients(call):
    def run(i, v, d):
        s = torch.sparse_coo_tensor(i, v.requires_grad_(), (3, 4))
        out = eval(call, {"torch": torch, "s": s, "v": v, "d": d.requires_grad_()})
        got = torch.autograd.grad((out * out).sum(), [v, d], allow_unused=True)
        return out, [g.to_dense() for g in got if g is not None]

    both(run, INDICES, VALUES, OTHER)


def test_the_gradient_of_a_sparse_leaf():
    def run(i, v, d):
        s = torch.sparse_coo_tensor(i, v, (3, 4)).requires_grad_()
        torch.sparse.mm(s, d.t()).sum().backward()
        return s.grad, s.grad.is_coalesced()

    both(run, INDICES, VALUES, OTHER)


OPTIMIZERS = {
    "sparse_adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bag", [False, True])
def test_sparse_embeddings_train(name, bag):
    def run(words):
        cls = nn.EmbeddingBag if bag else nn.Embedding
        torch.manual_seed(1)
        layer = cls(10, 4, sparse=True, **({"mode": "sum"} if bag else {}))
        layer.to(words.device)
        optimizer = OPTIMIZERS[name](list(layer.parameters()))
        for _ in range(3):
            optimizer.zero_grad()
            (layer(words) + layer(words.flip(0))).square().sum().backward()
            assert layer.weight.grad.is_sparse
            optimizer.step()
        return layer.weight.detach(), layer.weight.grad

    both(run, torch.tensor([[1, 2, 2], [9, 0, 1]]))


def test_clipping_of_sparse_gradients():
    def run(x):
        layer = nn.Embedding(10, 4, sparse=True)
        layer.weight.data.copy_(torch.arange(40.0).reshape(10, 4))
        layer.to(x.device)
        layer(x).square().sum().backward()
        grad = layer.weight.grad.coalesce()
        return grad.norm(), grad / 2

    both(run, torch.tensor([1, 2, 2]))


def error(function, device):
    with pytest.raises(Exception) as caught:
        function(device)
    # What torch adds after the first sentence is a list of all backends.
    text = str(caught.value).partition(". This could be because")[0]
    return type(caught.value), text.replace("npu:0", "cpu").replace("npu", "CPU")


WRONG = [
    lambda d: coo(d).indices(),
    lambda d: coo(d) @ torch.ones(3, 3, device=d),
    lambda d: torch.sparse_coo_tensor(
        INDICES.to(d), VALUES.to(d), (2, 2), check_invariants=True),
    lambda d: torch.sparse_coo_tensor(INDICES.to(d), VALUES[:2].to(d), (3, 4)),
    lambda d: coo(d).view(12),
    lambda d: torch.cos(coo(d)),
    lambda d: coo(d).to_sparse_csr().indices(),
    lambda d: coo(d) + torch.ones(3, 4, device=d),
    lambda d: torch.sparse_csr_tensor(
        torch.tensor([0, 9]).to(d), torch.tensor([0]).to(d), torch.ones(1).to(d),
        check_invariants=True),
    lambda d: coo(d).sort(),
]  # fmt: skip


def test_errors_are_those_of_cpu():
    for call in WRONG:
        assert error(call, "npu") == error(call, "cpu")


def test_tensors_of_two_devices_are_refused():
    for call in (lambda: coo("npu") @ torch.ones(4, 4), lambda: coo("npu") + coo()):
        with pytest.raises(RuntimeError, match="same device"):
            call()


def test_only_what_reads_memory_waits():
    s = coo("npu").coalesce()
    m = DENSE.npu()

    for call in (
        lambda: s.indices() + s._nnz(),
        lambda: s.neg(),
        lambda: s.clone().zero_(),
        lambda: torch.sparse_coo_tensor(s.indices(), s.values() * 2, s.shape,
                                        check_invariants=False, is_coalesced=True),
        lambda: torch.cat([s, s]),
    ):  # fmt: skip
        call()
        assert host_waits(call) == []
    for call in (lambda: torch.sparse.mm(s, m.t()), lambda: m.to_sparse(),
                 lambda: s.to_dense()):  # fmt: skip
        call()
        assert host_waits(call)


def test_work_of_a_queue_is_seen():
    torch.npu.synchronize()
    x = torch.ones(400, 400).npu()
    for _ in range(20):
        x = (x @ x) * (1 / 400)  # stays all ones

    assert x.to_sparse()._nnz() == 400 * 400
    assert torch.sparse.sum(x.to_sparse()).item() == pytest.approx(400 * 400, rel=1e-3)
