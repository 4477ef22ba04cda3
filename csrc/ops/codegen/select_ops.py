"""Which operators get a generated wrapper, and how their cpu kernel is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torchgen
from torchgen.api.types import DispatcherSignature
from torchgen.gen import parse_native_yaml
from torchgen.model import Argument, DispatchKey, NativeFunction, SchemaKind

# How a runner reads an argument of each schema type from its frame, and the type by
# which a shape function reads it from the boxed call.
READ_AS = {
    "Scalar": ("scalar", "at::Scalar"),
    "int": ("integer", "int64_t"),
    "SymInt": ("integer", "int64_t"),
    "bool": ("boolean", "bool"),
    "float": ("real", "double"),
    "ScalarType": ("dtype", "at::ScalarType"),
    "MemoryFormat": ("memory_format", None),
    "int[]": ("ints", "std::vector<int64_t>"),
    "SymInt[]": ("ints", "std::vector<int64_t>"),
}
# The same of types that are read in ways of their own, argument {}.
READ_BY = {
    "Tensor": ("f.tensor({})", "meta_of(a[{}])"),
    "Tensor?": ("f.opt_tensor({})", "opt_meta_of(a[{}])"),
    "Tensor[]": ("f.tensors({})", "metas_of(a[{}])"),
    "Tensor?[]": ("f.opt_tensors({})", "opt_metas_of(a[{}])"),
    "Scalar[]": ("f.scalars({})", None),
    "Generator?": ("f.generator({})", None),
    "float[]?": ("f.opt({0}, f.reals({0}))", None),
    "str": ("f.string({})", "a[{}].toStringView()"),
    "str?": ("f.opt({0}, f.string({0}))", "opt_string_of(a[{}])"),
    "int[]?": ("f.opt({0}, f.ints({0}))", "opt_ints_of(a[{}])"),
    "SymInt[]?": ("f.opt({0}, f.ints({0}))", "opt_ints_of(a[{}])"),
}

# Written by hand in csrc/ops/manual, or of no use on a device.
BY_HAND = {
    "as_strided", "view", "_reshape_alias", "unfold", "view_as_real",
    "view_as_complex", "resize_", "empty.memory_format", "empty_strided",
    "set_", "set_.source_Storage", "set_.source_Storage_storage_offset",
    "set_.source_Tensor", "is_set_to", "_local_scalar_dense", "equal",
    "native_dropout", "_efficientzerotensor", "_fused_sdp_choice",
    "_test_functorch_fallback", "_foobar", "_nested_view_from_buffer",
    "_nested_from_padded",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward",
    "_linalg_svd", "_linalg_svd.U", "_linalg_eigh", "_linalg_eigh.eigenvalues",
    "linalg_eig", "linalg_eig.out", "_linalg_eigvals", "linalg_eigvals.out",
    "cholesky", "cholesky.out",
    "quantize_per_channel", "quantize_per_tensor", "quantize_per_tensor.tensor_qparams",
    "quantize_per_tensor.tensors", "quantize_per_tensor_dynamic",
    "_make_per_channel_quantized_tensor", "_make_per_tensor_quantized_tensor",
}  # fmt: skip

# Functional forms that may run the out kernel straight into their result. Not
# the rule: many out kernels use their output as scratch space of another size.
OUT_KERNEL_SUITS = {"where", "index_select", "hardtanh", "hardswish", "take", "addr"}

# Structured, but the out kernel first grows its output to an unreduced size.
OUT_KERNEL_GROWS = {"mse_loss", "smooth_l1_loss"}

# Structured, but the kernel lays its output out anew, or refuses an argument by
# how it lies in memory.
KERNEL_ASKS_LAYOUT = {"replication_pad2d", "isin"}

# The values of Scalar and float arguments are part of what identifies a call:
# they decide the shape of the result, or are compared with each other or with a
# bound that no type has, so that their class (value_class.h) does not tell
# whether the kernel accepts them.
NUMBERS_IN_KEY = {
    "arange.start_out", "range.out", "linspace.out", "logspace.out",
    "bernoulli.p", "bernoulli_.float", "geometric_", "uniform_", "histc",
    "histc.out", "hardtanh", "hardtanh.out", "hardtanh_", "rrelu_with_noise",
    "rrelu_with_noise.out", "rrelu_with_noise_",
}  # fmt: skip

# Some of these products do not go to torch's kernel (csrc/host/half_products.h), or
# go there in pieces (csrc/host/shared_products.h).
PRODUCTS = {"run_mm_out", "run_bmm_out", "run_addmm_out", "run_baddbmm_out"}

# Random numbers that are drawn with vector instructions (csrc/host/random_fill.h).
RANDOM = {
    "run_bernoulli__float": "fill_bernoulli",
    "run_normal_": "fill_normal",
    "run_uniform_": "fill_uniform",
}

# Computed in one pass where possible: the function has the result as last argument.
IN_ONE_PASS = {"run_native_dropout_backward": "masked_scale"}

# Launched by code that is written by hand, too (csrc/ops/named_ops.h).
NAMED = {"addmm"}


@dataclass(frozen=True)
class Op:
    """One operator to emit."""

    function: NativeFunction
    # The C++ call that computes it on the launcher: "at::cpu::add_outf", and
    # whether it writes into outputs that are passed to it.
    kernel: str
    kernel_function: NativeFunction
    writes_outputs: bool
    structured: bool
    # The functional form, where a meta function in C++ tells its shapes.
    shaped_by: NativeFunction | None

    @property
    def schema_name(self) -> str:
        return str(self.function.func.name)

    @property
    def ident(self) -> str:
        return self.schema_name.replace(".", "_")

    @property
    def runner(self) -> str:
        return "run_" + str(self.kernel_function.func.name).replace(".", "_")

    @property
    def shapes(self) -> str | None:
        if self.shaped_by is None:
            return None
        return "shapes_of_" + str(self.shaped_by.func.name).replace(".", "_")

    @property
    def header(self) -> str:
        return self.kernel_function.root_name

    @property
    def shares_kernels_code(self) -> bool:
        """Whether what tells its shapes cannot disagree with the kernel."""
        return (
            self.structured
            and self.shaped_by is not None
            and self.function.root_name not in KERNEL_ASKS_LAYOUT
        )

    @property
    def element_wise(self) -> bool:
        """Whether the arguments' sizes alone tell those of the result.

        Integers may name a dimension or a reduction, and lists are indices.
        """
        arguments = self.function.func.arguments.flat_all
        return self.kernel_function.structured_inherits == "TensorIteratorBase" and all(
            str(a.type).rstrip("?") in ("Tensor", "Scalar", "bool", "float", "str")
            for a in arguments
        )

    @property
    def compared(self) -> int:
        """A bit for each written tensor that is compared with the other arguments.

        Written lists are left out: they are an optimizer's states and parameters, and
        their kernels do not check whether these overlap.
        """
        arguments = self.function.func.arguments.flat_all
        return sum(
            1 << i
            for i, a in enumerate(arguments)
            if a.is_write and str(a.type) == "Tensor"
        )

    @property
    def may_be_unrecorded(self) -> bool:
        """Whether it has a kernel at autograd's key (csrc/ops/unrecorded.h).

        Not views, which autograd always notes; nor lists that are written, whose
        versions have no place there; nor operators without tensors, which are not
        dispatched there.
        """
        arguments = self.function.func.arguments.flat_all
        return (
            not self.function.is_view_op
            and any("Tensor" in str(a.type) for a in arguments)
            and all(str(a.type) == "Tensor" for a in arguments if a.is_write)
        )

    @property
    def signature(self) -> DispatcherSignature:
        return DispatcherSignature.from_schema(self.function.func)


def reads(argument: Argument, i: int) -> tuple[str | None, str | None]:
    """Return how a runner and a shape function read argument `i`; None: they cannot."""
    text = str(argument.type)
    if argument.is_write and text == "Tensor":
        return f"f.writable({i})", None
    if found := re.fullmatch(r"bool\[(\d+)\]", text):
        return f"f.booleans<{found[1]}>({i})", None
    text = re.sub(r"\[\d+\]", "[]", text)
    if text in READ_BY:
        ways = READ_BY[text]
        return ways[0].format(i), ways[1] and ways[1].format(i)
    base, optional = text.rstrip("?"), text.endswith("?")
    if base not in READ_AS:
        return None, None
    read, kind = READ_AS[base]
    if optional:
        to = kind and f"a[{i}].toOptional<{kind}>()"
        return f"f.opt({i}, f.{read}({i}))", to
    return f"f.{read}({i})", kind and f"a[{i}].to<{kind}>()"


def shaped_by(group: list[NativeFunction]) -> NativeFunction | None:
    """Return the form of a structured operator that its meta function is called by."""
    for f in group:
        if f.func.kind() == SchemaKind.functional and f.structured_delegate:
            arguments = f.func.arguments.flat_all
            if all(reads(a, i)[1] for i, a in enumerate(arguments)):
                return f
    return None


def tensors_only(function: NativeFunction) -> bool:
    returns = function.func.returns
    return all(str(r.type) == "Tensor" for r in returns)


def select() -> list[Op]:
    """All operators with a cpu kernel whose arguments a frame can hold."""
    packaged = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(
        str(packaged / "native_functions.yaml"), str(packaged / "tags.yaml")
    )
    cpu = parsed.backend_indices[DispatchKey.CPU]
    by_signature: dict[object, list[NativeFunction]] = {}
    for f in parsed.native_functions:
        by_signature.setdefault((f.root_name, f.func.signature()), []).append(f)

    ops = []
    for group in by_signature.values():
        structured = next((f for f in group if f.structured), None)
        if structured is not None and not cpu.has_kernel(structured):
            continue
        out = next(
            (f for f in group if f.func.kind() == SchemaKind.out and cpu.has_kernel(f)),
            None,
        )
        for f in group:
            if str(f.func.name) in BY_HAND or not tensors_only(f):
                continue
            grows = (
                f.root_name in OUT_KERNEL_GROWS
                and f.func.kind() == SchemaKind.functional
            )
            if structured is not None:
                # Every form of a structured operator is its out form.
                kernel = f if grows else structured
            elif not cpu.has_kernel(f):
                continue
            elif (
                f.func.kind() != SchemaKind.out
                and out
                and f.root_name in OUT_KERNEL_SUITS
            ):
                kernel = out
            else:
                kernel = f
            if f.func.kind() == SchemaKind.functional and not f.func.returns:
                continue
            if any(reads(a, 0)[0] is None for a in kernel.func.arguments.flat_all):
                continue
            if f.func.kind() == SchemaKind.scratch:
                continue
            writes = kernel.func.kind() == SchemaKind.out
            name = str(kernel.func.name.name)
            call = f"at::cpu::{name}_outf" if writes else f"at::cpu::{name}"
            shapes = shaped_by(group) if structured is not None else None
            ops.append(Op(f, call, kernel, writes, structured is not None, shapes))
    return sorted(ops, key=lambda op: (op.header, op.schema_name))
