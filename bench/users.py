"""Training steps of programs as users write them: plain, with torch.compile and with
compile_step(), until retired, against cpu eager and cpu compiled.

A transformer's encoder and an LSTM with dropout, an update of a DQN and a small MLP,
each with a fused optimizer.
"""

from __future__ import annotations

from _harness import Effort, Only, bench
from _peers import WHOLE_STEP
from compile import PLAIN, report

PEERS = (*PLAIN, WHOLE_STEP)
# case: calls in a block
CASES = {
    "transformer_step": 5,
    "transformer_dropout_step": 5,
    "lstm_dropout_step": 5,
    "dqn_step": 30,
    "mlp_step": 30,
}


@bench(repetitions=(12, 6, 1))
def main(repetitions: int, only: Only, effort: Effort) -> None:
    """Print a JSON line per case."""
    cases = {case: (calls, PEERS) for case, calls in CASES.items()}
    report(cases, repetitions, only, effort)


if __name__ == "__main__":
    main()
