"""Which figures the tables of those pages show that are about one subject: pieces,
compiled code, collectives and others.
"""

from __future__ import annotations

from _row import Row, single

# As TABLES of _rows.py.
PAGES: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {
    "neighbours": (
        ("alone", "beside one busy process", "beside two"),
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
                ("decoding loop: sort, multinomial, one `bool()` a token", "decode"),
                ("`generate()` of a tiny Llama, a token", "generate"),
                ("soft actor-critic, a gradient step", "sac"),
                ("variational autoencoder, a step", "vae"),
                ("`compile_step` of a two-block transformer", "compile_step"),
                ("the same with `reduce-overhead`", "reduce_overhead"),
                ("geometric mean", "geometric_mean"),
            )
        ),
    ),
    "halves": (
        ("of the time alone",),
        tuple(
            single(words, "halves_bench", case, "ratio")
            for words, case in (
                ("in halves, after one in halves", "in_halves"),
                ("alone, after one in halves", "alone_after_halves"),
                ("in halves, after one alone", "in_halves_after_alone"),
            )
        ),
    ),
    "products": (
        ("npu / cpu, 40 products", "400 products", "40, npu / cpu with one thread"),
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
        ("float16 / float32", "the same on cpu", "us"),
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
                ("the same with gradients", "conv2d_grad_8"),
                ("convolution, 64 channels", "conv2d_64"),
                ("the same with gradients, 64 channels", "conv2d_grad_64"),
            )
        ),
    ),
    "widths": (
        ("65,536 elements", "262,144", "1,048,576", "ps an element, one thread"),
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
                ("`softmax` of rows", "softmax"),
                ("`layer_norm`", "layer_norm"),
                ("`_foreach_addcmul_` of two", "foreach_addcmul"),
                ("`sum` of columns", "sum"),
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
                ("the same, with the cache of an earlier process", "warm"),
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
                "of these, what is npu's own",
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
                ("completion to coroutine over a bare eventfd's", "wake", "ratio_p50"),
                ("longest stall, 10,000 starting, ms", "many", "stall_starting_ms"),
                ("the same, completing, ms", "many", "stall_completing_ms"),
            )
        ),
    ),
    "distributed": (
        ("npu / cpu with gloo", "speed over gloo's", "npu, ms", "gloo, ms"),
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
                ("of 1 KB", "all_reduce_1KB"),
                ("of 1 MB", "all_reduce_1MB"),
                ("of 64 MB", "all_reduce_64MB"),
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
                "asynchronous `all_reduce` over a submission of C++, us",
                "distributed",
                "launch",
                "over_submit_us",
            ),
            single(
                "its note in the flight recorder, us",
                "distributed",
                "flight_recorder",
                "us",
            ),
            single(
                "computation hidden behind 1 Gbit/s, %",
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
