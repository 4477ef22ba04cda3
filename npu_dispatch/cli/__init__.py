"""The command `npu-dispatch`; the module of a subcommand is loaded when it is called.

The table below has what `npu-dispatch --help` prints, so printing it loads none
of them. A test compares it with the commands themselves.
"""

from __future__ import annotations

import importlib

import click

import npu_dispatch

# By module and name, the first sentence of a command's help.
_MODULES = {
    "npu_dispatch.cli.doctor": {
        "doctor": "Check the installation; report problems and how to fix them.",
        "ops": "List operators matching NAME and how each executes.",
    },
    "npu_dispatch.cli.plan": {
        "calibrate": "Measure this machine's CPU (one minute); write SPEC for `plan`.",
        "plan": "Predict how SCRIPT would run on another device.",
    },
    "npu_dispatch.cli.programs": {
        "run": "Run SCRIPT with the device loaded and print a summary to stderr.",
        "sanitize": "Run SCRIPT and report races between streams, and with the host.",
    },
    "npu_dispatch.cli.watch": {
        "dump": "Print what each stream and host thread of PID is doing, even if it "
        "hangs.",
        "postmortem": "Print what a killed process was doing: PID, or the last one.",
        "ps": "List the processes that use npu, most urgent first.",
        "top": "Watch queues, rates and latencies of PIDS (default: all processes).",
        "trace": "Record a timeline of a running process (PID) or of a command (-- "
        "CMD).",
    },
    "npu_dispatch.observe.serve.command": {
        "export": "Print a deployment file: alerts, dashboard, systemd unit, "
        "Kubernetes.",
        "serve": "Watch all local processes: a live page, /metrics and a JSON API.",
    },
}
COMMANDS = {
    name: (module, text)
    for module, commands in _MODULES.items()
    for name, text in commands.items()
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


_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(npu_dispatch.__version__)
def main() -> None:
    """Run PyTorch programs on the device `npu`, and inspect running ones."""
