"""The commands by name: each one's module is loaded when it is called.

The table below has what `npu-dispatch --help` prints, so printing it loads none
of them. A test compares it with the commands themselves.
"""

from __future__ import annotations

import importlib

import click

import npu_dispatch

__all__ = ["COMMANDS", "main"]

# By name, where the command is, and the first sentence of its help.
COMMANDS = {
    "calibrate": (
        "npu_dispatch.cli.plan",
        "Measure this machine's CPU and write SHEET, for `plan --device`.",
    ),
    "doctor": (
        "npu_dispatch.cli.facts",
        "Check the installation; report problems and how to fix them.",
    ),
    "dump": (
        "npu_dispatch.cli.watch",
        "Print what each stream and host thread of PID is doing, even if it hangs.",
    ),
    "export": (
        "npu_dispatch.observe.serve.command",
        "Print a deployment file: alerts, dashboard, systemd unit, Kubernetes.",
    ),
    "ops": (
        "npu_dispatch.cli.facts",
        "List operators matching NAME and how each executes.",
    ),
    "plan": (
        "npu_dispatch.cli.plan",
        "Predict how SCRIPT would run on another device.",
    ),
    "postmortem": (
        "npu_dispatch.cli.watch",
        "Print what a killed process was doing: PID, or the last one.",
    ),
    "ps": (
        "npu_dispatch.cli.watch",
        "List the processes that use npu, most urgent first.",
    ),
    "run": (
        "npu_dispatch.cli.programs",
        "Run SCRIPT with the device loaded and print a summary to stderr.",
    ),
    "sanitize": (
        "npu_dispatch.cli.programs",
        "Run SCRIPT and report memory accesses that no stream order separates.",
    ),
    "serve": (
        "npu_dispatch.observe.serve.command",
        "Watch all local processes: a live page, /metrics and a JSON API.",
    ),
    "top": (
        "npu_dispatch.cli.watch",
        "Show queues, rates and latencies live, of PIDS or of all processes.",
    ),
    "trace": (
        "npu_dispatch.cli.watch",
        "Record a timeline of a running process (PID) or of a command (-- CMD).",
    ),
}


class _Commands(click.Group):
    """The commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(npu_dispatch.__version__)
def main() -> None:
    """Run PyTorch programs on the device `npu`, and look at what it did."""
