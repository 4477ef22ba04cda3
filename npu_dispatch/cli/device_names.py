"""The options --torch-npu and --cuda: what else a program may call the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

import npu_dispatch
from npu_dispatch.config import Config, set_for_children

__all__ = ["device_names", "register_by_names"]

Command = TypeVar("Command", bound=Callable[..., object])


def device_names(command: Command) -> Command:
    """Give a command the options; they hold for the processes that it starts, too."""
    for option, variable, text in (
        ("--cuda", "NPU_DISPATCH_CUDA", 'Let torch.cuda and "cuda" mean the npu.'),
        (
            "--torch-npu",
            "NPU_DISPATCH_TORCH_NPU_ALIAS",
            "Let SCRIPT import torch_npu.",
        ),
    ):
        command = click.option(
            option,
            is_flag=True,
            expose_value=False,
            callback=_sets(variable),
            help=text,
        )(command)
    return command


def _sets(variable: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def ask(_: click.Context, __: click.Parameter, wanted: bool) -> None:
        if wanted:
            set_for_children(variable, "1")

    return ask


def register_by_names() -> None:
    """Register the device in this process, under all names that were asked for."""
    npu_dispatch.register()
    # Where something had imported torch before, the device is registered already.
    config = Config.read()
    if config.torch_npu_alias:
        npu_dispatch.install_torch_npu_alias()
    if config.cuda:
        npu_dispatch.redirect_cuda()
