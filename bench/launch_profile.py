"""What a small operator's launch executes on its caller's thread, by layer.

The cases of launch.py run under callgrind on npu, on cpu and on the floor: a backend
whose operators compute nothing and whose allocator is one list of free blocks
(cpp/launch_floor.cpp). A case runs with two numbers of calls, and the difference is
what a call executes. The floor is what torch alone costs, so npu minus floor is ours.
`--functions N` also lists the N functions in which most instructions are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
from _callgrind import MARK, Function, count, per_call
from _harness import Effort, bench, emit

ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT / "bench/cpp/launch_floor.cpp"
# The device on which the floor is; npu and cpu are their own.
DEVICES = {"npu": "npu", "cpu": "cpu", "floor": "maia"}

PROGRAM = f"""
import os, sys, torch
folder, floor, device, only, few, many = sys.argv[1:]
if device == "maia":
    torch.ops.load_library(floor)
sys.path.insert(0, folder)
sys.argv = ["launch.py"]
from launch import small
def block(call, n):
    for _ in range(n):
        call()
for case, call in small(device).items():
    if only not in case:
        continue
    block(call, 100)  # plans, caches, specialised bytecode
    for n in (few, many):
        if device == "npu":
            torch.npu.synchronize()  # not counted: spinning is not the launch's
        {MARK}
        block(call, int(n))
        {MARK}
os._exit(0)
"""

# Which functions a layer has, by library and name without arguments: the first
# that fits.
LAYERS = {
    "python": r"^libpython|^python3",
    "binding": r"libtorch_python",
    "call_site": r"npu::.*(call_site|hash_python_stack)",
    "encode": r"npu::(Key|Words|PlanTable)|npu::.*(describe|hash_of|plan_table|relate)"
    r"|npu::.*(call_|unrecorded|is_recorded|needs_autograd|launch_known|launch_threads)",
    "queue": r"npu::.*(Stream|Ring|launch$|current_stream|Parking|copy_inline)",
    "allocator": r"npu::.*(llocator|allocate|[Bb]lock|Pool)|^libc\.so.*(alloc|free)"
    r"|operator (new|delete)|posix_memalign|floor.*(give|take)|c10::.*Allocator",
    "tensor": r"TensorImpl|StorageImpl|intrusive_ptr|npu::.*(make_|wrap)|floor.*make"
    r"|TypeMeta|c10::(Storage|Device)|native::(view|alias|as_strided|t$|transpose)",
    "autograd": r"autograd::|ADInplaceOrView|AutogradState|GradMode|[Ff]w_?[Gg]rad"
    r"|VariableVersion|AutogradMeta|sequence_number",
    "dispatcher": r"at::_ops::|OperatorEntry|wrap_kernel_functor|DispatchKey"
    r"|StepCallbacks|RecordFunction",
    "thread_locals": r"__tls_get_addr|_tls_init",
    "system": r"^libc\.|libgomp|pthread|^ld-linux|libstdc",
    "other": r"",
}


def layer_of(function: Function) -> str:
    library, name = function
    name = name.replace("(anonymous namespace)::", "").partition("(")[0]
    text = f"{Path(library).name} {name}"
    return next(layer for layer, words in LAYERS.items() if re.search(words, text))


def compiled_floor(folder: Path) -> Path:
    """Compile the floor; fails where there is no g++."""
    torch_dir = Path(torch.__file__).parent
    compiler = ["ccache", "g++"] if shutil.which("ccache") else ["g++"]
    made, library = folder / "floor.o", folder / "floor.so"
    flags = ["-std=c++20", "-O2", "-fPIC", "-isystem", str(torch_dir / "include")]
    subprocess.run([*compiler, *flags, "-c", str(FLOOR), "-o", str(made)], check=True)
    where = ["-L", str(torch_dir / "lib"), "-ltorch_cpu", "-lc10"]
    linked = ["g++", "-shared", str(made), "-o", str(library), *where]
    subprocess.run(linked, check=True)
    return library


def cases(only: str) -> list[str]:
    from launch import small

    return [case for case in small("cpu") if only in case]


@bench(few=(100, 100, 1), many=(600, 600, 2), functions=(0, 0, 0))
def main(few: int, many: int, functions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per case. Needs g++ and valgrind; takes some minutes.

    A smoke run makes the same calls without valgrind, and counts nothing.
    """
    profiles: dict[str, list[Counter[Function]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = compiled_floor(folder)
        for device, where in DEVICES.items():
            arguments = [str(ROOT / "bench"), str(floor), where, only]
            arguments += [str(few), str(many)]
            if effort is Effort.SMOKE:
                command = [sys.executable, "-c", PROGRAM, *arguments]
                subprocess.run(command, check=True)
                continue
            # A part with calls comes after each other one: few, then many.
            blocks = count(folder, PROGRAM, *arguments)[1::2]
            profiles[device] = [
                per_call(a, b, many - few)
                for a, b in zip(blocks[::2], blocks[1::2], strict=True)
            ]
    for number, case in enumerate(cases(only)):
        if effort is Effort.SMOKE:
            emit(case=case)
            continue
        found = {device: profiles[device][number] for device in DEVICES}
        report(case, found, functions)


def report(case: str, found: dict[str, Counter[Function]], functions: int) -> None:
    totals = {device: counts.total() for device, counts in found.items()}
    by_layer = {
        device: Counter(dict.fromkeys(LAYERS, 0)) for device in ("npu", "floor")
    }
    for device, layers in by_layer.items():
        for function, n in found[device].items():
            layers[layer_of(function)] += n
    emit(
        case=case,
        **{device: round(total) for device, total in totals.items()},
        ratio=round(totals["npu"] / totals["cpu"], 3),
        floor_ratio=round(totals["floor"] / totals["cpu"], 3),
        above_floor=round(totals["npu"] - totals["floor"]),
        **{
            f"{device}_{layer}": round(n)
            for device, layers in by_layer.items()
            for layer, n in layers.items()
        },
    )
    for device in ("npu", "cpu"):
        for (library, name), n in found[device].most_common(functions):
            file = Path(library).name
            print(f"{case} {device} {n:8.1f} {file:24.24} {name[:150]}")


if __name__ == "__main__":
    main()
