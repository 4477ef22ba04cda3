"""Why a test of others fails here: classes of failures, each with its sentence."""

from __future__ import annotations

import re

# Patterns of "test: message", and why it is so. The first that fits counts.
REASONS = {
    r"which has no quantized tensors": (
        "the device has no quantized tensors, which torch has deprecated; the error "
        "says what to use instead"
    ),
    r"test_op_errors\[(gather|masked_fill)\]|test_advancedindex_|test_masked_scatter_"
    r"|with_tensor_of_scalarlist_overload|test_embedding_bag_out_of_bounds_idx"
    r"|test_one_hot_npu|ZeroDivisionError": (
        "the error depends on a value in device memory, such as an index; the kernel "
        "finds it, so it is raised late, as on a GPU"
    ),
    r"tensor_indices_or_sections to be on cpu": (
        "torch accepts the indices of tensor_split() on cpu only"
    ),
    r"test_lazy_clone_|test_parallel_cow_": (
        "`_lazy_clone` copies at once: the values are right, but the copy is not lazy"
    ),
    r"its kernels are those of cpu, and torch has none of this operator": (
        "torch has kernels of this operator for CUDA only, and the error says so"
    ),
    r"NPU out of memory": "the test needs more memory than the device has",
    r"test_tensor_storage_type_": (
        "the test knows the storage classes of CUDA and torch only; those of npu are "
        "in `torch.npu`, as in torch_npu"
    ),
    r"map2?_ is only implemented on CPU": (
        "`map_` and `map2_` call Python for each element, which torch does on cpu only"
    ),
    r"_resize_output.*device set: it is on npu:0, expected npu": (
        "torch compares device names: the test expects `npu`, the tensor has `npu:0`"
    ),
    r"_foreach_abs_slowpath_outplace_npu_bool": (
        "`abs` accepts bool, as on CUDA; `_foreach_abs` does not, as on cpu"
    ),
    r"has_inf-nn\.functional\.conv_transpose3d|variant\[_convolution[.\[]": (
        "half-precision convolutions are computed in float32; that kernel skips the "
        "padding, while torch's half-precision kernel multiplies its zeros by infinite "
        "or NaN weights"
    ),
    r"test_memory_format_nn_GroupNorm": (
        "torch keeps the input's layout in the gradient of group_norm on cpu only; on "
        "other devices the gradient is contiguous"
    ),
    r"test_errors_nn_Embedding_.*on the same device": (
        "the call has two errors; the device mismatch is reported first, as for other "
        "operators"
    ),
    r"test_random_from_to_.*UserWarning not triggered": (
        "the kernel warns of bounds that the type cannot hold, so the warning is late"
    ),
    r"_ConvBackend\.Overrideable": (
        "torch uses one backend name for the convolutions of all devices outside torch"
    ),
    r"derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "torch has no second derivative of this attention kernel; on cpu the test is "
        "skipped"
    ),
    r"test_reference_numerics_sub_npu_complex32": (
        "the test tolerates the rounding of this type on cpu and CUDA only; the value "
        "equals that of cpu"
    ),
    r"test_cholesky_inverse_errors_and_warnings": (
        "torch's shape function gives the same warning in other words"
    ),
    r"test_upsamplingBiMode2d_nonsupported_dtypes.*uint8": (
        "the test expects an error on every device but cpu; npu uses the cpu kernels, "
        "which accept the call"
    ),
    r"not supported on CUDA. does not match": (
        "the test expects CUDA's message on every device but cpu"
    ),
    r"test_sparse_low_level_compressed_generic_helpers": (
        "the test uses uninitialised memory as indices"
    ),
}
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS.items():
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
