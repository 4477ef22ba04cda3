"""Options of several commands: a program, names of the device, files to write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import npu_dispatch
from npu_dispatch.config import Config, set_for_children

Command = TypeVar("Command", bound=Callable[..., object])
PROGRAM = "[OPTIONS] SCRIPT | -m MODULE"


class _OutputFile(click.ParamType):  # type: ignore[type-arg]
    """A file that can be written. It is asked first, so that no work is lost.

    Missing folders are made.
    """

    name = "file"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        path = Path(value)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.fail(
                f"cannot make the folder {str(path.parent)!r}: {error}", param, ctx
            )
        if path.is_dir():
            self.fail(f"{value!r} is a folder; name a file", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{value!r} cannot be written: no permission", param, ctx)
        return path


OUTPUT_FILE = _OutputFile()


AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def json_options(command: Command) -> Command:
    """Give a command --json and -o FILE, for give_json()."""
    to_file = click.option("-o", "--out", type=OUTPUT_FILE, help="Write JSON to FILE.")
    return AS_JSON(to_file(command))


def give_json(text: str, as_json: bool, out: Path | None) -> None:
    """Print JSON, or write it to a file, as the options say."""
    if out is not None:
        out.write_text(text + "\n")
    if as_json:
        click.echo(text)


def program_options(command: Command) -> Command:
    """Give a command a program to run, and the names that it may use for the device.

    The names hold for the processes that the program starts, too.
    """
    text = 'Make torch.cuda and the device "cuda" mean npu.'
    cuda = _switch("--cuda", "NPU_DISPATCH_CUDA", text)
    text = "Make `import torch_npu` work in SCRIPT."
    torch_npu = _switch("--torch-npu", "NPU_DISPATCH_TORCH_NPU_ALIAS", text)
    text = "Run MODULE instead of SCRIPT, like `python -m`."
    module = click.option("-m", "module", is_flag=True, help=text)
    args = click.argument("args", nargs=-1, type=click.UNPROCESSED)
    return torch_npu(cuda(module(args(command))))


def _switch(option: str, variable: str, text: str) -> Callable[[Command], Command]:
    def ask(_: click.Context, __: click.Parameter, wanted: bool) -> None:
        if wanted:
            set_for_children(variable, "1")

    return click.option(
        option, is_flag=True, expose_value=False, callback=ask, help=text
    )


def register_by_names() -> None:
    """Register the device in this process, under all names that were asked for."""
    npu_dispatch.register()
    # Where something had imported torch before, the device is registered already.
    config = Config.read()
    if config.torch_npu_alias:
        npu_dispatch.install_torch_npu_alias()
    if config.cuda:
        npu_dispatch.redirect_cuda()
