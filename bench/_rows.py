"""Which figures the tables of README.md and docs/ show."""

from __future__ import annotations

from _page_rows import PAGES
from _row import Row, of_peers, single

# The cases of launch.py whose geometric mean is taken.
LAUNCHED = (
    *("add", "add_out", "add_", "mm", "relu_", "sum", "cat", "softmax", "view"),
    *("copy_", "linear_grad"),
)
LAYERED = ("add", "add_", "linear_grad")  # whose layers a page shows
# The layers of launch_profile.py, and how they are called.
LAUNCH_LAYERS = (
    ("python", "interpreter"),
    ("binding", "binding"),
    ("dispatcher", "dispatcher"),
    ("autograd", "autograd"),
    ("tensor", "tensor"),
    ("allocator", "allocator"),
    ("encode", "encoding of the call"),
    ("queue", "queue"),
    ("call_site", "Python line"),
    ("thread_locals", "thread-local variables"),
    ("system", "C library"),
    ("other", "other"),
)

# name: heads of the columns between the words and the command; rows
TABLES: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {
    "launch_profile": (
        ("npu", "floor", "cpu", "npu / cpu", "floor / cpu"),
        tuple(
            Row(
                f"`{case}`",
                "launch_profile",
                tuple(
                    (case, field)
                    for field in ("npu", "floor", "cpu", "ratio", "floor_ratio")
                ),
            )
            for case in LAUNCHED
        ),
    ),
    "launch_layers": (
        tuple(words for _, words in LAUNCH_LAYERS),
        tuple(
            Row(
                f"`{case}`, {device}",
                "launch_profile",
                tuple((case, f"{device}_{layer}") for layer, _ in LAUNCH_LAYERS),
            )
            for case in LAYERED
            for device in ("npu", "floor")
        ),
    ),
    "front": (
        ("figure",),
        tuple(
            single(*row)
            for row in (
                (
                    "time until the call of a small operator returns, npu / cpu",
                    "launch",
                    "geometric_mean",
                    "ratio",
                ),
                ("small MLP training step, npu / cpu", "train", "mlp", "ratio"),
                ("tiny GPT training step, npu / cpu", "train", "gpt_tiny", "ratio"),
                ("encoder, changing lengths, npu / cpu", "dynamic", "encoder", "ratio"),
                (
                    "small MLP step, replayed graph on npu / eager on cpu",
                    "graphs",
                    "mlp_step",
                    "ratio",
                ),
                ("race sanitizer on / off, MLP step", "sanitizer", "mlp", "ratio"),
                (
                    "share of instructions of `torch.add` that collect metrics, %",
                    *("stats_cost", "instructions_of_torch_add", "statistics_percent"),
                ),
            )
        ),
    ),
    "ratios": (
        ("npu / cpu", "npu / cpu with one thread", "npu / cpu with `torch.compile`"),
        (
            of_peers("small MLP training step", "train", "mlp"),
            of_peers("tiny GPT step", "train", "gpt_tiny"),
            of_peers("LSTM training step", "train", "lstm"),
            of_peers("CNN of ResNet-18's size (limited by arithmetic)", "train", "cnn"),
            of_peers("wide GPT step (limited by arithmetic)", "train", "gpt_wide"),
            of_peers(
                "small MLP, torch's default optimizer kernels", "train", "mlp_defaults"
            ),
            of_peers(
                "tiny GPT, torch's default optimizer kernels",
                "train",
                "gpt_tiny_defaults",
            ),
            of_peers(
                "LSTM, torch's default optimizer kernels", "train", "lstm_defaults"
            ),
            of_peers(
                "encoder layer, another length and batch each step",
                "dynamic",
                "encoder",
            ),
            of_peers("replay: 16-layer MLP forward", "graphs", "mlp_16x16_forward"),
            of_peers("replay: small MLP training step", "graphs", "mlp_step"),
            of_peers("replay: tiny GPT step", "graphs", "gpt_tiny_step"),
            of_peers(
                "small operators (geometric mean), until the call returns",
                "launch",
                "geometric_mean",
            ),
            single(
                "small operators (geometric mean), until the task has ended",
                "launch",
                "geometric_mean",
                "total_ratio",
            ),
        ),
    ),
    "costs": (
        ("figure",),
        (
            single("time added to `import torch`, ms", "import_time", "import", "ms"),
            single(
                "first minus later call at a new shape, median of 13 operators, us",
                "cold",
                "median_of_operators",
                "npu_added_us",
            ),
            single(
                "first call of an operator in a process minus a later one, us",
                "cold",
                "opinfo",
                "npu_added_us",
            ),
            single(
                "memory growth over steps of changing shape, MB",
                "dynamic",
                "memory",
                "npu_grown_mb",
            ),
            single(
                "wake-up of a coroutine (uvloop) / of a bare eventfd, p50",
                "aio",
                "wake_uvloop",
                "ratio_p50",
            ),
            single(
                "throughput of two streams / one stream, kernels with one thread",
                "cores",
                "two_streams_small_180",
                "ratio",
            ),
            single(
                "time of a launch, two Python threads / one, same stream",
                "producers",
                "2_to_one_stream",
                "over_one",
            ),
            single("empty `synchronize()`, ns", "enqueue", "empty_synchronize", "ns"),
            single(
                "submission of a task of 256 bytes, ns",
                "enqueue",
                "enqueue",
                "added_ns",
            ),
            single(
                "submission of a task with its Python line, ns",
                "enqueue",
                "enqueue_with_site",
                "added_ns",
            ),
            single(
                "the same, in a process in which two threads have launched, ns",
                "enqueue",
                "enqueue_with_site_after_a_second_thread",
                "added_ns",
            ),
            single(
                "search for the Python line of a launch, 16 calls deep, ns",
                "provenance",
                "lookup_at_depth_16",
                "added_ns",
            ),
            single("tracing on / off, tiny GPT step", "tracing", "gpt_tiny", "ratio"),
            single("race sanitizer on / off, MLP step", "sanitizer", "mlp", "ratio"),
            single(
                "race sanitizer on / off, small operators", "sanitizer", "loop", "ratio"
            ),
            single(
                "PyTorch's own sanitizer on / off, small operators",
                "sanitizer",
                "loop_upstreams_sanitizer",
                "ratio",
            ),
            single(
                "share of a `torch.add`'s instructions that are for statistics, %",
                "stats_cost",
                "instructions_of_torch_add",
                "statistics_percent",
            ),
        ),
    ),
    "programs": (
        ("npu / cpu",),
        tuple(
            single(*row)
            for row in (
                ("stable-baselines3: PPO on CartPole", "rl", "ppo", "ratio"),
                ("stable-baselines3: A2C on CartPole", "rl", "a2c", "ratio"),
                ("stable-baselines3: DQN on CartPole", "rl", "dqn", "ratio"),
                ("stable-baselines3: SAC on Pendulum", "rl", "sac", "ratio"),
                ("stable-baselines3: PPO update in graph", "rl", "ppo_update", "ratio"),
                (
                    "transformers: step of Trainer, tiny GPT-2",
                    *("trainer", "trainer_gpt2", "ratio"),
                ),
                (
                    "time that accelerate adds to a step",
                    *("trainer", "accelerate", "added_ratio"),
                ),
            )
        ),
    ),
    "server": (
        ("npu, graphs", "npu, eager", "cpu, eager", "cpu, frozen `torch.compile`"),
        tuple(
            Row(
                words,
                "serve_async",
                tuple(
                    (who, field)
                    for who in ("npu_graphs", "npu_eager", "cpu_eager", "cpu_compiled")
                ),
            )
            for words, field in (
                ("requests per second", "requests_per_s"),
                ("p50, ms", "p50_ms"),
                ("p99, ms", "p99_ms"),
            )
        ),
    ),
    "compile": (
        (
            "cpu, `torch.compile`",
            "npu, eager",
            "npu, `torch.compile`",
            "npu, reduce-overhead",
            "npu, whole step",
        ),
        tuple(
            Row(
                words,
                "compile",
                tuple(
                    (case, f"{who}_ratio")
                    for who in (
                        "cpu_compiled",
                        "npu",
                        "npu_compiled",
                        "npu_reduce_overhead",
                        "npu_whole_step",
                    )
                ),
            )
            for words, case in (
                ("forward of 16 small layers", "mlp_16x16_forward"),
                ("small MLP training step", "mlp_step"),
                ("tiny GPT training step", "gpt_tiny_step"),
            )
        ),
    ),
    "steps": (
        (
            "npu",
            "cpu",
            "forward",
            "backward",
            "optimizer",
            "host waits",
            "kernels",
            "between kernels",
            "launcher waits",
        ),
        tuple(
            Row(
                words,
                "step_profile",
                tuple(
                    (case, f"{part}_us")
                    for part in (
                        "untraced",
                        "cpu",
                        "forward",
                        "backward",
                        "optimizer",
                        "host_waits",
                        "kernels",
                        "between",
                        "waits_for_work",
                    )
                ),
            )
            for words, case in (
                ("small MLP", "mlp"),
                ("LSTM", "lstm"),
                ("tiny GPT", "gpt_tiny"),
                ("wide GPT", "gpt_wide"),
                ("encoder layer, another length each step", "encoder"),
            )
        ),
    ),
    **PAGES,
}
