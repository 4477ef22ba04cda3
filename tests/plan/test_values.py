"""Programs that use values which nobody has computed: they read zeros."""

import pytest

PROGRAM = """
import random, numpy, torch
from torch.distributions import Categorical, Normal
import torch.nn.functional as F
model = torch.nn.Linear(16, 10).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.ones(8, 16, device="npu")
table, rows = torch.ones(10, 4, device="npu"), torch.ones(10, 4)
step = 0
def use(y):
    odds = torch.softmax(y, -1)
    {use}
while True:
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    step += 1
    use(model(x).detach())
"""
# On the device and on the host, as programs sample and look up.
WORKS = """
    for p in odds, odds.cpu():
        drawn = [torch.multinomial(p, 3), p[0].multinomial(20, replacement=True)]
        drawn.append(Categorical(probs=p).sample())
        drawn.append(Categorical(logits=p.log()).sample())
        assert [d.shape for d in drawn] == [(8, 3), (20,), (8,), (8,)]
        for indices in (d.cpu() for d in drawn):
            assert indices.dtype == torch.long
            assert 0 <= indices.min() and indices.max() < 10
            rows[indices]
        assert len(set(drawn[0][0].tolist())) == 3 or p is odds
        Categorical(probs=p).log_prob(drawn[2]), Normal(p, p.exp()).rsample()
        torch.bernoulli(p), torch.randint(0, 10, (3,), device=p.device)
        assert p.tolist()[0] == [0.0] * 10 and not torch.isnan(p).any()
    best = odds.topk(3).indices
    F.embedding(odds.argmax(-1), table), odds.gather(1, best)
    rows[best.cpu()], rows[int(odds.argmax())]
    assert len(odds.nonzero()) == len(odds[odds > 0.5]) == 0
    assert F.cross_entropy(y[y[:, 0] > 9], best[y[:, 0] > 9, 0]).item() == 0
    odds[odds > 0.5] = 0
    assert torch.unique(odds).tolist() == [0.0]
    if loss < 1e9:  # never
        raise SystemExit
    table[torch.searchsorted(odds[0].cumsum(0), torch.rand(3, device="npu"))]
"""


def test_a_program_that_samples_and_looks_up_is_planned(planned) -> None:
    done = planned(PROGRAM.replace("    {use}", WORKS), 10)

    assert done.report["steps"] >= 10, done.err
    assert not done.report["notes"]
    # What checks the arguments of a distribution waits for the device, as there.
    assert done.report["sync_bound"] > 0


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("assert torch.isfinite(odds).all()", "AssertionError"),
        ("random.choices(range(10), odds[0].tolist())", "ValueError: Total of weights"),
        (
            "numpy.random.choice(10, p=odds[0].cpu())",
            "ValueError: probabilities",
        ),
        ("rows[(odds[0].cumsum(0).cpu() < 0.5).sum()]", "IndexError: index 10 is out"),
        ("odds[odds > 0.5].max().item()", "max(): Expected reduction dim"),
    ],
)
def test_one_that_cannot_go_on_with_zeros_is_told_the_line(planned, use, said) -> None:
    done = planned(PROGRAM.format(use=use), 10)

    assert done.status == 1 and done.reports == []
    text = " ".join(done.err.split())
    line = f"{done.folder}/script.py:12"
    assert f"Error: the program failed at {line}: " in text, text
    sentence = text.partition("Error: the program failed at ")[2]
    assert said in sentence
    assert f"a plan computes no values, and what {line} in use read" in sentence
    assert sentence.endswith("from the device was zeros")


def test_one_that_fails_after_its_steps_is_planned(planned) -> None:
    use = 'if step == 9: raise ValueError("no more data")'
    done = planned(PROGRAM.format(use=use), 10)

    assert done.status == 0, done.err
    assert done.report["steps"] == 5
    (note, *_) = done.report["notes"]
    assert note.startswith("The program failed after 9 steps at ")
    assert "script.py:12: ValueError: no more data. These steps are planned" in note
