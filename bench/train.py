"""What a training step costs until it is retired, npu against cpu.

Small MLP, tiny GPT and LSTM are bound by launches, wide GPT and CNN by
arithmetic. npu and cpu have the same kind of optimizer kernels; a second row per
model, `..._defaults`, has those that torch chooses by itself. What else a user
could pick, one thread or torch.compile on cpu, has the kind that is fastest
there, fused.
"""

from __future__ import annotations

from _harness import Effort, Only, bench
from _peers import CPU, NPU, Call, Peer, Workers
from training import training_step

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
def main(repetitions: int, only: Only, peers: tuple[str, ...], effort: Effort) -> None:
    """Print a JSON line per case."""
    with Workers(*peers, effort=effort, make=make) as workers:
        for case in filter(only, MODELS if effort is Effort.SMOKE else CASES):
            model, kind = CASES[case]
            workers.report(
                case,
                MODELS[model][0],
                repetitions,
                # Other kinds of kernels change nothing for the other peers.
                peers=peers if case in MODELS else ("npu", "cpu"),
                same_cpu=True,
                more={"optimizer": kind},
            )


if __name__ == "__main__":
    main()
