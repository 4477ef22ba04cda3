"""Which figures the tables of those pages show that are about one subject: pieces,
compiled code, collectives and others.
"""

from __future__ import annotations

from _row import Row, single

# As TABLES of _rows.py.
PAGES: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {
    "neighbours": (
        ("alone", "beside one busy process", "beside two busy processes"),
        tuple(
            Row(
                words,
                "neighbour",
                tuple((f"{case}_beside_{n}", "ratio") for n in range(3)),
            )
            for words, case in (
                ("small MLP training step", "mlp"),
                ("tiny GPT training step", "gpt_tiny"),
                ("LSTM training step", "lstm"),
                ("CNN of ResNet-18's size", "cnn"),
                ("encoder layer, another length each step", "encoder"),
                ("decoding loop: sort, multinomial, one `bool()` per token", "decode"),
                ("`generate()` of a tiny Llama, per token", "generate"),
                ("soft actor-critic, gradient step", "sac"),
                ("variational autoencoder, training step", "vae"),
                (
                    "`compile_step`, two-block transformer (cpu: `torch.compile`)",
                    "compile_step",
                ),
                (
                    "`reduce-overhead`, two-block transformer (cpu: `torch.compile`)",
                    "reduce_overhead",
                ),
                ("geometric mean", "geometric_mean"),
            )
        ),
    ),
    "halves": (
        ("time / time if both kernels run on one core",),
        tuple(
            single(words, "halves_bench", case, "ratio")
            for words, case in (
                ("in halves, the kernel before in halves", "in_halves"),
                ("on one core, the kernel before in halves", "alone_after_halves"),
                ("in halves, the kernel before on one core", "in_halves_after_alone"),
            )
        ),
    ),
    "products": (
        (
            "npu / cpu, 40 products",
            "npu / cpu, 400 products",
            "npu / cpu with one thread, 40 products",
        ),
        tuple(
            Row(
                words,
                "products",
                tuple(
                    (case, field)
                    for field in ("ratio", "long_ratio", "ratio_to_cpu_one_thread")
                ),
            )
            for words, case in (
                ("128 x 128 x 128", "2_million"),
                ("128 x 128 x 256", "4_million"),
                ("128 x 128 x 512", "8_million"),
                ("256 x 256 x 256", "17_million"),
                ("128 x 784 x 400", "40_million_wide"),
                ("784 x 128 x 400", "40_million_tall"),
                ("512 x 512 x 512", "134_million"),
                ("2048 x 512 x 512", "537_million"),
            )
        ),
    ),
    "half": (
        ("float16 / float32 on npu", "float16 / float32 on cpu", "float16 on npu, us"),
        tuple(
            Row(
                words,
                "half",
                ((case, "ratio"), (case, "cpu_ratio"), (case, "npu_us")),
            )
            for words, case in (
                *(
                    (f"{rows} x 512 x 512{layout}", f"mm_{rows}x512x512_{letters}")
                    for rows in (1, 64)
                    for letters, layout in (
                        ("nn", ""),
                        ("nt", ", right transposed"),
                    )
                ),
                ("convolution, 8 channels", "conv2d_8"),
                ("convolution, 8 channels, with gradients", "conv2d_grad_8"),
                ("convolution, 64 channels", "conv2d_64"),
                ("convolution, 64 channels, with gradients", "conv2d_grad_64"),
            )
        ),
    ),
    "widths": (
        (
            "65,536 elements, npu / cpu",
            "262,144 elements, npu / cpu",
            "1,048,576 elements, npu / cpu",
            "cpu, one thread, ps per element",
        ),
        tuple(
            Row(
                words,
                "widths",
                (
                    *((f"{case}_{size}", "ratio") for size in ("65k", "262k", "1m")),
                    (f"{case}_262k", "ps_per_element"),
                ),
            )
            for words, case in (
                ("`add`", "add"),
                ("`exp`", "exp"),
                ("`gelu`", "gelu"),
                ("`sqrt`", "sqrt"),
                ("`tanh`", "tanh"),
                ("`softmax(-1)`", "softmax"),
                ("`layer_norm`", "layer_norm"),
                ("`_foreach_addcmul_` of two tensors", "foreach_addcmul"),
                ("`sum(0)`", "sum"),
                ("`cat`", "cat"),
                ("`copy_`", "copy"),
                ("`binary_cross_entropy`", "bce"),
            )
        ),
    ),
    "compile_larger": (
        (
            "cpu, `torch.compile`",
            "npu, eager",
            "npu, `torch.compile`",
            "npu / cpu, both compiled",
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
                        "to_cpu_compiled",
                    )
                ),
            )
            for words, case in (
                ("LSTM training step", "lstm_step"),
                ("CNN of ResNet-18's size", "cnn_step"),
                ("wide GPT step", "gpt_wide_step"),
            )
        ),
    ),
    "compile_first": (
        ("npu, s", "cpu, s"),
        tuple(
            Row(
                words,
                "compile",
                (("first_compile", f"{of}_s"), ("first_compile", f"cpu_{of}_s")),
            )
            for words, of in (
                ("first step of a process, empty cache", "cold"),
                ("first step of a process, cache of an earlier process", "warm"),
            )
        ),
    ),
    "compile_calls": (
        ("us",),
        (
            single(
                "launch of a generated kernel",
                "compile",
                "launch_6_arguments",
                "host_us",
            ),
            single(
                "call of a reduce-overhead function with 20 parameters",
                "compile",
                "reduce_overhead_20_parameters",
                "host_us",
            ),
            single(
                "npu_dispatch's part of that call",
                "compile",
                "reduce_overhead_20_parameters",
                "own_us",
            ),
        ),
    ),
    "aio": (
        ("asyncio", "uvloop"),
        tuple(
            Row(words, "aio", ((f"{case}_asyncio", field), (f"{case}_uvloop", field)))
            for words, case, field in (
                ("wake-up of a coroutine / of a bare eventfd", "wake", "ratio_p50"),
                ("longest stall, 10,000 waits start, ms", "many", "stall_starting_ms"),
                ("longest stall, 10,000 waits end, ms", "many", "stall_completing_ms"),
            )
        ),
    ),
    "distributed": (
        ("time, npu / gloo", "speed, npu / gloo", "npu, ms", "gloo, ms"),
        tuple(
            Row(
                words,
                "distributed",
                tuple(
                    (case, field)
                    for field in ("ratio", "speed", "npu_ms", "cpu_gloo_ms")
                ),
            )
            for words, case in (
                ("`all_reduce` of 1 element", "all_reduce_1"),
                ("`all_reduce` of 1 KB", "all_reduce_1KB"),
                ("`all_reduce` of 1 MB", "all_reduce_1MB"),
                ("`all_reduce` of 64 MB", "all_reduce_64MB"),
                ("`reduce_scatter` of 32 MB", "reduce_scatter_32MB"),
                ("`all_gather` of 32 MB", "all_gather_32MB"),
                ("DDP step, 1.5 MB of gradients", "ddp_1.5MB"),
                ("DDP step, 32 MB of gradients", "ddp_32MB"),
                ("DDP step, tiny GPT", "ddp_gpt_tiny"),
                ("DDP step, tiny GPT, in one replay", "ddp_gpt_tiny_captured"),
            )
        ),
    ),
    "distributed_costs": (
        ("figure",),
        (
            single(
                "asynchronous `all_reduce` call minus a C++ task submission, us",
                "distributed",
                "launch",
                "over_submit_us",
            ),
            single(
                "record of one call in the flight recorder, us",
                "distributed",
                "flight_recorder",
                "us",
            ),
            single(
                "share of the computation that overlaps communication at 1 Gbit/s, %",
                "distributed",
                "hidden_1Gbit",
                "npu_hidden_percent",
            ),
        ),
    ),
    "scraped": (
        ("launches per second", "longest gap, us", "other threads' CPU time, us"),
        tuple(
            Row(
                words,
                "scrape_gil",
                tuple(
                    (f"launches_{case}", field)
                    for field in ("rate", "longest_gap_us", "other_threads_us")
                ),
            )
            for words, case in (
                ("not scraped", "quiet"),
                ("service scraped without a pause", "scraped"),
                ("another busy process instead of the service", "other_load"),
                ("metrics rendered by a thread of the training process", "in_process"),
            )
        ),
    ),
}
