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
import socket
import subprocess
import sys
from multiprocessing import connection
from pathlib import Path
from typing import Any

from zygote import read_at_start

from npu_dispatch import _C

_PIPE = subprocess.PIPE
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


class Process(subprocess.Popen[Any]):
    """A child of the zygote, with the pipes of a child of ours."""

    def __init__(
        self, zygote: Zygote, request: dict[str, Any], text: bool = True, **files: Any
    ) -> None:
        self._zygote, self._request = zygote, request
        encoding = "utf-8" if text else None
        super().__init__(["python", *request["argv"]], encoding=encoding, **files)

    def _execute_child(self, *arguments: Any) -> None:
        """Start it: what Popen calls when it has made the pipes."""
        pipes = arguments[10:16]  # both ends of stdin's, of stdout's and of stderr's
        theirs = (pipes[0], pipes[3], pipes[5])
        files = [number if file < 0 else file for number, file in enumerate(theirs)]
        try:
            self._status = self._zygote.fork(self._request, files)
        finally:
            self._close_pipe_fds(*pipes)
        self._answers = self._status.makefile("rb")
        self.pid = self._answer()
        self._child_created = True

    def _answer(self) -> int:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the zygote is gone; its last words are on stderr")
        return int(line)

    def _wait(self, timeout: float | None) -> int | None:
        """Wait for what the zygote says of its child: it is none of ours."""
        if self.returncode is None:
            if not connection.wait([self._status], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._answer()
            self._answers.close()
            self._status.close()
        return self.returncode

    def _internal_poll(self, **_: Any) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode
