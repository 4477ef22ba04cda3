"""The C++ text of one operator: its runner, and the wrapper torch calls."""

from __future__ import annotations

from itertools import count

from select_ops import IN_ONE_PASS, NAMED, NUMBERS_IN_KEY, PRODUCTS, RANDOM, Op, reads
from torchgen.context import native_function_manager

# Of a kernel that allocates its results. torch's own keep nothing else.
MADE_THERE = "const ResultMemory offered(f.new_results());"


def runner(op: Op) -> str:
    """The function the launcher calls; shared by all forms of an operator."""
    func = op.kernel_function.func
    # Inputs come first in every form, in the same order.
    inputs = func.arguments.flat_non_out
    given = [str(reads(argument, i)[0]) for i, argument in enumerate(inputs)]
    n_results = len(func.returns)
    if op.writes_outputs:
        given += [f"f.out({i})" for i in range(n_results)]
    call = f"{op.kernel}({', '.join(given)})"
    new = [i for i, r in enumerate(func.returns) if r.annotation is None]
    if op.runner in PRODUCTS:
        all_given = ", ".join(given)
        ways = f"half_product({all_given}) || shared_product({all_given})"
        body = f"  if ({ways}) return;\n  {call};"
    elif op.runner in RANDOM:
        # Its last argument is the generator.
        seeded = ", ".join([*given[:-1], "f.seed()"])
        body = f"  if ({RANDOM[op.runner]}({seeded})) return;\n  {call};"
    elif op.writes_outputs or not new:
        body = f"  {call};"
    elif n_results == 1:
        body = f"  {MADE_THERE}\n  f.store({{{call}}});"
    else:
        values = ", ".join(f"std::get<{i}>(r)" for i in new)
        body = f"  {MADE_THERE}\n  const auto r = {call};\n  f.store({{{values}}});"
    if op.runner in IN_ONE_PASS:
        own = f"{IN_ONE_PASS[op.runner]}({', '.join(given)}, f.out(0))"
        body = f"  if ({own}) return;\n{body}"
    return f"void {op.runner}(Frame& f) {{\n{body}\n}}"


def shape_function(op: Op) -> str:
    """The function that tells the results of every form of an operator."""
    assert op.shaped_by is not None
    func = op.shaped_by.func
    given = [str(reads(a, i)[1]) for i, a in enumerate(func.arguments.flat_all)]
    name = str(func.name.name)
    return (
        f"bool {op.shapes}(c10::ArrayRef<c10::IValue> a, Shapes& results) {{\n"
        f"  return add_all(results, at::meta::{name}({', '.join(given)}));\n}}"
    )


def results_of(op: Op) -> tuple[int, list[str]]:
    """Return how many results are new, and each one: such a one or an argument."""
    func = op.function.func
    written = {str(a.annotation): a.name for a in func.arguments.flat_all if a.is_write}
    returns = [written.get(str(r.annotation)) for r in func.returns]
    fresh = count()
    values = [r or f"std::move(r[{next(fresh)}])" for r in returns]
    return returns.count(None), values


def wrapper(op: Op) -> str:
    """The kernel registered with torch's dispatcher."""
    with native_function_manager(op.function):
        names = [a.name for a in op.signature.arguments()]
        defn = op.signature.defn(name=f"call_{op.ident}")
    name, _, overload = op.schema_name.partition(".")
    numbers = "kYes" if op.schema_name in NUMBERS_IN_KEY else "kNo"
    meta = "kSeparate"
    if op.shares_kernels_code:
        meta = "kElementWise" if op.element_wise else "kSharesKernelsCode"
    shapes = f"&{op.shapes}" if op.shapes else "nullptr"
    compared = f"{op.compared:#x}"
    declaration = (
        f'const Op op_{op.ident}("aten::{name}", "{overload}", &{op.runner}, '
        f"NumbersInKey::{numbers}, Meta::{meta}, {shapes}, {compared});"
    )
    arguments = ", ".join([f"op_{op.ident}", *names])
    new, values = results_of(op)
    if new == 1 and len(values) == 1:
        body = f"  return call_new({arguments});"
    else:
        call = (
            f"call_new_several<{new}, {compared}>({arguments})"
            if new
            else f"call_in_place<{compared}>({arguments})"
        )
        body = f"  auto r = {call};" if new else f"  {call};"
        if len(values) == 1:
            body += f"\n  return {values[0]};"
        elif values:
            body += f"\n  return {{{', '.join(values)}}};"
    return f"{declaration}\n{defn} {{\n{body}\n}}"


def unrecorded(op: Op) -> str:
    """The kernel at autograd's key: csrc/ops/unrecorded.h."""
    func = op.function.func
    with native_function_manager(op.function):
        arguments = op.signature.arguments()
        returned = op.signature.returns_type().cpp_type()
    names = [a.name for a in arguments]
    declared = ", ".join(["c10::DispatchKeySet keys", *(a.decl() for a in arguments)])
    written = [a.name for a in func.arguments.flat_all if a.is_write]
    new, values = results_of(op)
    conditions = [f"is_unrecorded({', '.join(['keys', *names])})"]
    if written:
        conditions.append(f"counts_versions({', '.join(written)})")
    results = f"std::array<at::Tensor, {new}> r;\n  " if new else ""
    given = ", ".join([f"op_{op.ident}", "r.data()" if new else "nullptr", *names])
    conditions.append(f"try_launch<{op.compared:#x}>({given})")
    value = values[0] if len(values) == 1 else f"{{{', '.join(values)}}}"
    if not values:
        value = ""
    noted = "".join(f"    note_write({name});\n" for name in written)
    full = func.name.unambiguous_name()
    redispatch = ", ".join(["recorded_keys(keys)", *names])
    return (
        f"{returned} unrecorded_{op.ident}({declared}) {{\n"
        f"  {results}if ({' && '.join(conditions)}) {{\n"
        f"{noted}    return {value};\n  }}\n"
        f"  return at::_ops::{full}::redispatch({redispatch});\n}}"
    )


def registration(op: Op) -> str:
    return f'  m.impl("{op.schema_name}", TORCH_FN(call_{op.ident}));'


def unrecorded_registration(op: Op) -> str:
    return f'  m.impl("{op.schema_name}", TORCH_FN(unrecorded_{op.ident}));'


def shard(ops: list[Op]) -> str:
    """One source file with these operators."""
    headers = sorted({op.header for op in ops})
    includes = "\n".join(f"#include <ATen/ops/{h}_cpu_dispatch.h>" for h in headers)
    metas = sorted({op.header for op in ops if op.shapes})
    includes += "\n" + "\n".join(
        f"#include <ATen/ops/{h}_meta_dispatch.h>" for h in metas
    )
    named = [op for op in ops if op.schema_name in NAMED]
    dispatched = [op for op in ops if op.may_be_unrecorded]
    roots = sorted({op.function.root_name for op in dispatched})
    includes += "\n" + "\n".join(f"#include <ATen/ops/{r}_ops.h>" for r in roots)
    runners = {op.runner: runner(op) for op in ops}
    shapes = {op.shapes: shape_function(op) for op in ops if op.shapes}
    parts = [
        "// Made by csrc/ops/codegen/gen.py; not to be edited.",
        # The dispatch headers need the types that this one brings.
        '#include "csrc/ops/frame.h"',
        '#include "csrc/host/half_products.h"',
        '#include "csrc/host/masked_scale.h"',
        '#include "csrc/host/random_fill.h"',
        '#include "csrc/ops/kernels.h"',
        '#include "csrc/host/shared_products.h"',
        '#include "csrc/ops/launch.h"',
        '#include "csrc/ops/named_ops.h"',
        '#include "csrc/host/result_memory.h"',
        '#include "csrc/ops/shapes.h"',
        '#include "csrc/ops/unrecorded.h"\n',
        includes,
        "namespace npu {\nnamespace {\n",
        "\n\n".join([*runners.values(), *shapes.values()]),
        "\n" + "\n\n".join(wrapper(op) for op in ops),
        "\n" + "\n\n".join(unrecorded(op) for op in dispatched),
        "\nNPU_KERNELS(PrivateUse1, m) {",
        "\n".join(registration(op) for op in ops),
        "}\n\nNPU_KERNELS(AutogradPrivateUse1, m) {",
        "\n".join(unrecorded_registration(op) for op in dispatched),
        "}\n\n}  // namespace",
        *(f"const Op& op_of_{op.ident}() {{ return op_{op.ident}; }}" for op in named),
        "}  // namespace npu\n",
    ]
    return "\n".join(parts)
