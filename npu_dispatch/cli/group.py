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
        "Measure this machine's cpu as a device, and write SHEET for `plan --device`.",
    ),
    "doctor": (
        "npu_dispatch.cli.facts",
        "Say what is installed, what is wrong with it, and how to mend it.",
    ),
    "dump": (
        "npu_dispatch.cli.watch",
        "Say what the streams and host threads of PID are doing, also when it hangs.",
    ),
    "export": (
        "npu_dispatch.service.command",
        "Print a file for who deploys: rules, dashboard, service unit, Kubernetes.",
    ),
    "ops": (
        "npu_dispatch.cli.facts",
        "Say how operators run: all of those whose name contains NAME.",
    ),
    "plan": (
        "npu_dispatch.cli.plan",
        "Say how SCRIPT would run on a device of stated speed.",
    ),
    "postmortem": (
        "npu_dispatch.cli.watch",
        "Say what a killed process was doing: PID, or the one that died last.",
    ),
    "ps": (
        "npu_dispatch.cli.watch",
        "List the processes that use npu, the most urgent first.",
    ),
    "run": (
        "npu_dispatch.cli.programs",
        "Run SCRIPT with the device loaded; end with a summary on stderr.",
    ),
    "sanitize": (
        "npu_dispatch.cli.programs",
        "Run SCRIPT and report accesses to memory that nothing orders.",
    ),
    "serve": (
        "npu_dispatch.service.command",
        "Watch all local processes: a live page, /metrics and a JSON API.",
    ),
    "top": (
        "npu_dispatch.cli.watch",
        "Watch queues, rates and latencies of PIDS, by default of all that launch.",
    ),
    "trace": (
        "npu_dispatch.cli.watch",
        "Record a timeline: of a running process (PID), or of a command (-- CMD).",
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
