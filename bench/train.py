"""What a training step costs until it is retired, npu against cpu.

Small MLP, tiny GPT and LSTM are bound by launches, wide GPT and CNN by
arithmetic. npu and cpu have the same kind of optimizer kernels; a second row per
model, `..._defaults`, has those that torch chooses by itself. What else a user
could pick, one thread or torch.compile on cpu, has the kind that is fastest
there, fused.
"""

from __future__ import annotations

from _harness import Effort, bench, emit, geometric_mean
from _peers import (
    CPU,
    NPU,
    Call,
    Peer,
    Workers,
    against_npu,
    microseconds,
    serve_if_worker,
    timer,
)
from steps import training_step

# model: steps in a block, kind of optimizer kernels. SGD is compared as foreach, and
# once as fused.
MODELS = {
    "mlp": (30, "foreach"),
    "gpt_tiny": (5, "fused"),
    "gpt_wide": (1, "fused"),
    "cnn": (1, "foreach"),
    "lstm": (5, "fused"),
}
# case: model, kind
CASES = (
    {model: (model, kind) for model, (_, kind) in MODELS.items()}
    | {"mlp_fused": ("mlp", "fused")}
    | {f"{model}_defaults": (model, "defaults") for model in MODELS}
)


def make(peer: Peer, case: str) -> Call:
    model, kind = CASES[case]
    return training_step(peer, model, kind if peer in (NPU, CPU) else "fused")


@bench(repetitions=(8, 4, 1))
def main(repetitions: int, only: str, peers: list[str], effort: Effort) -> None:
    """Print a JSON line per case, then the geometric mean."""
    ratios = []
    with Workers(*peers, effort=effort) as workers:
        for case, (model, kind) in CASES.items():
            is_main = case in MODELS
            if only not in case or (effort is Effort.SMOKE and not is_main):
                continue
            steps, _ = MODELS[model]
            times = workers.compare(
                case,
                steps,
                repetitions,
                # Other kinds of kernels change nothing for the other peers.
                peers=peers if is_main else ["npu", "cpu"],
                same_cpu=True,
            )
            found = against_npu(times)
            if is_main:
                ratios.append(found["ratio"])
            emit(
                case=case,
                optimizer=kind,
                **found,
                **microseconds(times),
                npu_host_us=round(times["npu"].host, 1),
            )
    if ratios:
        ratio = round(geometric_mean(ratios), 3)
        emit(case="geometric_mean", models=len(ratios), ratio=ratio)


if __name__ == "__main__":
    serve_if_worker(time=timer(make))
    main()
