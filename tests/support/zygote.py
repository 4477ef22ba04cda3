"""A process that has imported torch, and forks a child for each program.

A test process costs two seconds of imports before its own first line. Here they
are paid once: the zygote imports torch without the device and starts no thread;
a child gets its environment, folder, files and arguments after the fork, loads
the device as `import torch` would have, runs its program as `__main__`, and ends
as any interpreter does, but for what libraries loaded before it destroy last, which
`_skip_last_destructors` explains. `interpreter.py` is its client.
"""

import builtins
import ctypes
import errno
import gc
import importlib.abc
import importlib.machinery
import json
import linecache
import os
import runpy
import select
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Any

import compiler_sanitizer

# What the interpreter and libraries have read by the time of the fork. A child
# cannot have another value of these: such a program needs a process of its own.
_READ_AT_START = (
    *("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_"),
    *("TORCH", "PYTORCH_", "CUDA_", "NUMPY_", "NPY_"),
)
_READ_LATER = (
    *("TORCH_NPU_", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTORCH_NPU_"),
    *("PYTORCH_ALLOC_CONF", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    "TORCH_FR_DUMP_TEMP_FILE",
)
# Sanitizers and gcov report after the last destructors; at night all of them run.
_ENDS_IN_FULL = bool(
    compiler_sanitizer.PRESENT
    or os.environ.get("NPU_SANITIZER")
    or os.environ.get("NPU_TEST_NIGHTLY")
)


def read_at_start(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that are too late for a forked child."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_START) and not name.startswith(_READ_LATER)
    }


def main() -> None:
    """Serve the socket that is standard input; return in each child, when done."""
    _import_all()
    requests = socket.socket(fileno=os.dup(0))
    # The terminal sends Ctrl-C to all of a test run; the children are ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        poll = select.poll()
        for fd in (requests.fileno(), *running):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll():
            if fd in running:
                _tell_status(fd, *running.pop(fd))
                continue
            message, fds, _, _ = socket.recv_fds(requests, 1, 4)
            if not message:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                # As objects: their destructors must not close what the program
                # opens under the same numbers.
                requests.close()
                for pidfd, (_, status) in running.items():
                    os.close(pidfd)
                    os.close(status)
                _become(fds)
                return
            for file in fds[:3]:
                os.close(file)
            os.write(fds[3], b"%d\n" % pid)
            running[os.pidfd_open(pid)] = pid, fds[3]


def _import_all() -> None:
    """Import what a first operator imports; leave no other thread and no garbage."""
    import torch

    # Shape functions in Python pull it in at the first `x + 1`: a second.
    import torch._dynamo

    assert torch._C._get_privateuse1_backend_name() == "privateuseone", (
        "the device is a child's to register, in the child's environment"
    )
    # OpenBLAS has made its threads at numpy's import. It ends them at a fork,
    # and makes new ones when somebody multiplies.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    # TSan has one of its own, which it starts again in a child.
    own = 2 if compiler_sanitizer.PRESENT == "thread" else 1
    threads = Path("/proc/self/task").iterdir()
    assert len(list(threads)) == own, "a fork would lose threads"
    # A child's last collection would walk through, and copy the pages of, all
    # that torch is: most of a second. What the program makes is not frozen.
    gc.collect()
    gc.freeze()


def _tell_status(pidfd: int, pid: int, status: int) -> None:
    os.close(pidfd)
    _, code = os.waitpid(pid, 0)
    try:
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(code))
    except OSError as error:  # nobody asks any more
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise
    os.close(status)


def _become(fds: list[int]) -> None:
    """Turn this child of the zygote into the interpreter that was asked for."""
    for number, file in enumerate(fds[:3]):
        os.dup2(file, number)
        os.close(file)
    with socket.socket(fileno=fds[3]) as status, status.makefile("rb") as file:
        request = json.load(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    del sys.modules["zygote"]

    import torch

    if not _ENDS_IN_FULL:
        _skip_last_destructors()
    seed_generators(int(request["env"].get("NPU_TEST_SEED", "0")))
    if request["imports_torch"]:
        sys.path[1:1] = request["path"]
        sys.meta_path.insert(0, _FirstImport(torch))
        del sys.modules["torch"]
    # The end of `import torch`.
    elif torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    _run(request["argv"])


def _skip_last_destructors() -> None:
    """Let this process end before libraries loaded so far destroy their statics.

    libc calls such functions last registered first. The interpreter has ended by
    then, and so have the statics of the device, which is loaded later. What is left
    is torch, which takes back its thousands of kernels one by one: a third of what
    a small program costs. A compiler's sanitizer, and gcov, report at this point.
    """
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)


class _FirstImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the program's own `import torch` end as the first one does."""

    def __init__(self, torch: types.ModuleType) -> None:
        self._torch, self._spec = torch, torch.__spec__

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._torch

    def exec_module(self, torch: Any) -> None:
        # Until then torch counts as being imported, which the autoload asks.
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()
        torch.__spec__ = self._spec


def seed_generators(seed: int) -> None:
    """Let the generators of Python, numpy and torch begin at a number."""
    import random

    import numpy.random
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _run(argv: list[str]) -> None:
    """Run `-c CODE ARG...`, `-m MODULE ARG...` or `FILE ARG...` as `__main__`."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    loader: Any = importlib.machinery.BuiltinImporter
    names = vars(module)
    names.update(__loader__=loader, __annotations__={}, __builtins__=builtins)
    sys.orig_argv = [sys.executable, *argv]
    try:
        if argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            sys.path[0] = ""
            if sys.version_info >= (3, 13):  # whose tracebacks show the lines of -c
                lines = [f"{line}\n" for line in argv[1].splitlines()]
                linecache.cache["<string>"] = (len(argv[1]), None, lines, "<string>")
            exec(compile(argv[1], "<string>", "exec", dont_inherit=True), names)
        elif argv[0] == "-m":
            sys.argv = ["-m", *argv[2:]]
            sys.path[0] = str(Path.cwd())
            runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]
        else:
            sys.argv = argv
            path = argv[0]
            sys.path[0] = str(Path(path).resolve().parent)
            loader = importlib.machinery.SourceFileLoader("__main__", path)
            names.update(__file__=path, __cached__=None, __loader__=loader)
            source = loader.get_data(path)
            exec(compile(source, path, "exec", dont_inherit=True), names)
    except SystemExit:
        raise
    except BaseException as error:
        # Printed here, without this function's frame; raised, so that the
        # interpreter chooses the status: 1, or death by SIGINT.
        assert error.__traceback__ is not None
        shown = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(shown), shown, shown.__traceback__)
        sys.excepthook = lambda *_: None
        raise
