"""What a small operator's launch executes on its caller's thread, by layer.

The cases of launch.py run under callgrind on npu, on cpu and on the floor: a backend
whose operators compute nothing and whose allocator is one list of free blocks
(cpp/launch_floor.cpp). A case runs with two numbers of calls, and the difference is
what a call executes. The floor is what torch alone costs, so npu minus floor is ours.
`--functions N` also lists the N functions in which most instructions are.

The case `sanitizer` is `add` on npu, with the race sanitizer:

- `after_ratio`: after it was switched on and off again, over a process that never had
  it. This is what it leaves behind.
- `share`: of those instructions, the ones that ask whether an observer is there. This
  is what its existence costs those who never switch it on.
- `on_ratio`: while it is on.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from _callgrind import MARK, Counts, Function, count, per_call
from _harness import Only, bench, emit
from launch import small

ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT / "bench/cpp/launch_floor.cpp"
# The device on which the floor is; npu and cpu are their own.
DEVICES = {"npu": "npu", "cpu": "cpu", "floor": "maia"}
FEW, MANY = 100, 600  # calls; below what the ring holds: none waits for space
SANITIZER = "sanitizer"

PROGRAM = f"""
import os, sys, torch
folder, floor, device, sanitizer, names, few, many = sys.argv[1:]
if device == "maia":
    torch.ops.load_library(floor)
sys.path.insert(0, folder)
sys.argv = ["launch.py"]
from launch import small
if sanitizer != "never":
    torch.npu._sanitizer.enable_npu_sanitizer()
if device == "npu":  # in each state, so that plans and memory are where they are
    torch.ones(8, 8, device="npu") + 1
    torch.npu.synchronize()
if sanitizer == "after":
    torch.npu._sanitizer.disable_npu_sanitizer()
def block(call, n):
    for _ in range(n):
        call()
for case, call in small(device).items():
    if case not in names.split(","):
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
    "queue": r"npu::.*(Stream|Ring|launch$|current_stream|Parking|copy_inline)"
    r"|npu::.*time_calls",
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
    torch_dir, library = Path(torch.__file__).parent, folder / "floor.so"
    flags = ("-std=c++20", "-O2", "-fPIC", "-shared", "-isystem", torch_dir / "include")
    linked = ("-L", torch_dir / "lib", "-ltorch_cpu", "-lc10")
    subprocess.run(["g++", *flags, FLOOR, "-o", library, *linked], check=True)
    return library


def counted(
    names: Iterable[str],
    device: str = "npu",
    *,
    floor: Path = FLOOR,
    sanitizer: str = "never",
    few: int = FEW,
    many: int = MANY,
) -> list[Counts]:
    """Return what a call of each case executes."""
    where = [str(ROOT / "bench"), str(floor), DEVICES[device], sanitizer]
    parts = count(PROGRAM, *where, ",".join(names), str(few), str(many))[1::2]
    # A part with calls comes after each other one: few, then many.
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [per_call(a, b, many - few) for a, b in pairs]


@bench(few=(FEW, FEW, 1), many=(MANY, MANY, 2), functions=(0, 0, 0))
def main(few: int, many: int, functions: int, only: Only) -> None:
    """Print a JSON line per case. Needs g++ and valgrind; takes some minutes."""
    calls = {"few": few, "many": many}
    if names := [*filter(only, small("cpu"))]:
        with tempfile.TemporaryDirectory() as folder:
            floor = compiled_floor(Path(folder))
            profiles = {
                device: counted(names, device, floor=floor, **calls)
                for device in DEVICES
            }
        for number, case in enumerate(names):
            found = {device: profiles[device][number] for device in DEVICES}
            report(case, found, functions)
    if only(SANITIZER):
        states = ("never", "after", "on")
        found = {s: counted(["add"], sanitizer=s, **calls)[0] for s in states}
        of_sanitizer(found, functions)


def of_sanitizer(found: dict[str, Counts], functions: int) -> None:
    totals = {state: counts.total() for state, counts in found.items()}
    total = totals["never"]
    own, calls = (
        sum(n for (_, name), n in of.items() if name.startswith("npu::observers("))
        for of in (found["never"], found["never"].calls)
    )
    emit(
        case=SANITIZER,
        instructions=round(total, 1),
        after_instructions=round(totals["after"], 1),
        after_ratio=round(totals["after"] / total, 5),
        on_instructions=round(totals["on"], 1),
        on_ratio=round(totals["on"] / total, 3),
        questions=round(calls, 2),
        # Beside them the call, and the test of what it returns.
        share=round((own + 3 * calls) / total, 5),
    )
    show(SANITIZER, found["on"] - found["never"], functions)


def show(title: str, counts: Counter[Function], functions: int) -> None:
    for (library, name), n in counts.most_common(functions):
        print(f"{title} {n:8.1f} {Path(library).name:24.24} {name[:150]}")


def report(case: str, found: dict[str, Counts], functions: int) -> None:
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
        **{
            f"{device}_{layer}": round(n)
            for device, layers in by_layer.items()
            for layer, n in layers.items()
        },
    )
    for device in ("npu", "cpu"):
        show(f"{case} {device}", found[device], functions)


if __name__ == "__main__":
    main()
