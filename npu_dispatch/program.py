"""A program that a command runs as Python itself would."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

import click

AFTER_DASHES = "npu_dispatch.program.after_dashes"  # of click.Context.meta


class Runner(click.Command):
    """A command whose program, with `-m` a module, gets all that follows its name."""

    # The program's own options are none of ours, and come behind it.
    ignore_unknown_options = True
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = args.copy()
        left = super().parse_args(ctx, args)
        ours = words[: len(words) - len(ctx.params["args"])]
        ctx.meta[AFTER_DASHES] = ours[-1:] == ["--"]
        return left


def what_to_run(
    module: bool, args: tuple[str, ...]
) -> tuple[str | Path, tuple[str, ...]]:
    """Return the module's name or the script, and its arguments."""
    if not args:
        raise click.UsageError("Missing argument 'SCRIPT', or -m MODULE.")
    if module:
        return args[0], args[1:]
    script = Path(args[0])
    if not script.is_file():
        raise click.BadParameter(
            f"File {args[0]!r} does not exist.", param_hint="'SCRIPT'"
        )
    return script, args[1:]


def execute(what: str | Path, args: tuple[str, ...]) -> None:
    """Run a program as this process's main program; raise what it raises."""
    import runpy

    if isinstance(what, Path):
        # Python makes a script's path absolute too, so that frames name it so.
        script = os.path.abspath(what)  # noqa: PTH100 (links stay)
        sys.argv = [script, *args]
        sys.path.insert(0, str(what.resolve().parent))
        runpy.run_path(script, run_name="__main__")
    else:
        sys.argv = [what, *args]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def run_program(what: str | Path, args: tuple[str, ...]) -> int:
    """Run a program as `python SCRIPT ARGS` or `python -m MODULE ARGS` would.

    Returns the exit status.
    """
    _hide_command()
    try:
        execute(what, args)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        _show(stop)
        return 130
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _hide_command() -> None:
    """Say that the file which pip made for this command is not the user's code."""
    from npu_dispatch import _C

    command = getattr(sys.modules["__main__"], "__file__", None)
    if command:
        _C.add_origin(command, False)


def _show(error: BaseException) -> None:
    """Print the traceback from the program's first frame on."""
    import runpy
    import traceback

    ours = {__file__, "<frozen runpy>", runpy.__file__}
    frames: TracebackType | None = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames or error.__traceback__))
