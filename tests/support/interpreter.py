"""Two ways to run Python programs: forked from a zygote, and from the start.

Both take `-c CODE`, `-m MODULE` or a file, with arguments, and give what
subprocess gives: a process with its pipes, or a CompletedProcess.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.metadata
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from zygote import read_at_start

from npu_dispatch import _C

_PIPE, _DEVNULL, _STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
_ZYGOTE = "import sys; sys.path[0] = sys.argv[1]; import zygote; zygote.main()"


def environment(**changes: str) -> dict[str, str]:
    """Return an environment in which a child finds this npu_dispatch."""
    env = {**os.environ, **changes}
    home = Path(_C.__file__).parent.parent
    if (home / "npu_dispatch" / "__init__.py").exists():  # built in place
        paths = [str(home), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    env.setdefault("PYTEST_ADDOPTS", _no_plugins_of_others())
    return env


@functools.cache
def _no_plugins_of_others() -> str:
    """Return what lets a child's pytest load our plugin only.

    To import those of all tools takes ten times as long as pytest itself.
    """
    others = {
        plugin.name
        for plugin in importlib.metadata.entry_points(group="pytest11")
        if plugin.name != "npu_dispatch"
    }
    return " ".join(f"-p no:{name}" for name in sorted(others))


class Spawned:
    """Each program in an interpreter started for it."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd

    def __call__(
        self,
        code: str,
        *args: str,
        timeout: float = 120,
        check: bool = True,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end: python(code, *arguments, NAME=value...)."""
        result = self.run("-c", code, *args, timeout=timeout, env=environment(**env))
        if check:
            assert result.returncode == 0, f"{result.returncode}: {result.stderr}"
        return result

    def run(
        self, *argv: str, timeout: float = 120, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `-c CODE`, `-m MODULE` or a file to its end, and catch its output."""
        with self.start(*argv, stdout=_PIPE, stderr=_PIPE, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        assert process.returncode is not None
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def start(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        **options: Any,
    ) -> Any:
        """Start it as Popen does, with text in its pipes."""
        env = environment() if env is None else env
        options.setdefault("text", True)
        return self._start(list(argv), env, str(cwd or self._cwd), options)

    def _start(
        self, argv: list[str], env: dict[str, str], cwd: str, options: dict[str, Any]
    ) -> Any:
        return subprocess.Popen([sys.executable, *argv], env=env, cwd=cwd, **options)


class Forked(Spawned):
    """Each program in a child of the zygote: for all that does not test starting."""

    def __init__(self, cwd: Path, zygote: Zygote, imports_torch: bool = False) -> None:
        """With `imports_torch` the program's own `import torch` loads the device."""
        super().__init__(cwd)
        self._zygote, self._imports_torch = zygote, imports_torch

    def _start(
        self, argv: list[str], env: dict[str, str], cwd: str, options: dict[str, Any]
    ) -> Process:
        request = {"argv": argv, "env": env, "cwd": cwd}
        request["imports_torch"] = self._imports_torch
        return Process(self._zygote, request, **options)


class Zygote:
    """The process that has imported torch; it starts when first needed."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self._env = env or environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def fork(self, request: dict[str, Any], files: list[int]) -> socket.socket:
        """Start a child; its pid, and one day its status, come from the socket."""
        wanted, have = read_at_start(request["env"]), read_at_start(self._env)
        request["path"] = []
        if request["imports_torch"] and "PYTHONPATH" in wanted:
            known = have.pop("PYTHONPATH", "").split(os.pathsep)
            paths = wanted.pop("PYTHONPATH").split(os.pathsep)
            request["path"] = [path for path in paths if path not in known]
        differ = sorted(wanted.items() ^ have.items())
        assert not differ, f"a program with its own {differ}: fresh_python"
        if self._requests is None:
            self._requests, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-c", _ZYGOTE, str(Path(__file__).parent)]
                self._process = subprocess.Popen(
                    command, stdin=theirs, stdout=_PIPE, env=self._env
                )
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._requests, [b"f"], [*files, theirs.fileno()])
        ours.sendall(json.dumps(request).encode())
        ours.shutdown(socket.SHUT_WR)
        return ours

    def close(self) -> None:
        if self._process is None or self._requests is None:
            return
        self._requests.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@functools.cache
def shared_zygote() -> Zygote:
    """Return the one of this test process; it ends with it."""
    zygote = Zygote()
    atexit.register(zygote.close)
    return zygote


class Process:
    """What tests use of subprocess.Popen, for a child of the zygote."""

    def __init__(
        self,
        zygote: Zygote,
        request: dict[str, Any],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        bufsize: int = -1,
        text: bool = True,
    ) -> None:
        self.args = request["argv"]
        self.returncode: int | None = None
        self._name = f"python {' '.join(self.args)[:200]}"
        with contextlib.ExitStack() as theirs:
            self.stdin, read = _end(stdin, 0, theirs, "w", bufsize, text)
            self.stdout, write = _end(stdout, 1, theirs, "r", bufsize, text)
            if stderr == _STDOUT:
                self.stderr, error = None, write
            else:
                self.stderr, error = _end(stderr, 2, theirs, "r", bufsize, text)
            self._status = zygote.fork(request, [read, write, error])
        self._answers = self._status.makefile("rb")
        self._readers: list[_Reader] | None = None
        self.pid = self._answer()

    def _answer(self) -> int:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the zygote is gone; its last words are on stderr")
        return int(line)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self._name, timeout or 0)
            self.returncode = self._answer()
            self._answers.close()
            self._status.close()
        return self.returncode

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[Any, Any]:
        end = None if timeout is None else time.monotonic() + timeout
        if self._readers is None:
            self._readers = [_Reader(self.stdout), _Reader(self.stderr)]
        if self.stdin and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        for reader in self._readers:
            reader.join(None if end is None else max(0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self._name, timeout or 0)
        self.wait(None if end is None else max(0, end - time.monotonic()))
        out, err = (reader.text for reader in self._readers)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        for file in filter(None, (self.stdin, self.stdout, self.stderr)):
            file.close()
        self.wait()


class _Reader(threading.Thread):
    """Reads a pipe to its end, or nothing where there is none."""

    def __init__(self, file: IO[Any] | None) -> None:
        super().__init__(daemon=True)
        self._file = file
        self.text: Any = None
        self.start()

    def run(self) -> None:
        if self._file is not None:
            with self._file:
                self.text = self._file.read()


def _end(
    asked: Any,
    number: int,
    theirs: contextlib.ExitStack,
    mode: str,
    bufsize: int,
    text: bool,
) -> tuple[IO[Any] | None, int]:
    """Return our end of one of the three files, and the descriptor of theirs."""
    if asked is None:
        return None, number
    if asked == _DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, null)
        return None, null
    if asked != _PIPE:
        return None, asked if isinstance(asked, int) else asked.fileno()
    read, write = os.pipe()
    ours, other = (write, read) if mode == "w" else (read, write)
    theirs.callback(os.close, other)
    if text:
        # As Popen: what is said is flushed by whoever says it.
        return os.fdopen(ours, mode, encoding="utf-8"), other
    return os.fdopen(ours, mode + "b", bufsize), other
