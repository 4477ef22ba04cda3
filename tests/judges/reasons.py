"""Why a test of others fails here: classes of failures, each with its sentence."""

from __future__ import annotations

import re

# Patterns of "test: message", and why it is so. The first that fits counts.
REASONS = {
    r"which has no quantized tensors": (
        "torch's quantized tensors, which are deprecated there: the device has none, "
        "and the error says what to use instead"
    ),
    r"test_op_errors\[(gather|masked_fill)\]|test_advancedindex_|test_masked_scatter_"
    r"|with_tensor_of_scalarlist_overload|test_embedding_bag_out_of_bounds_idx"
    r"|test_one_hot_npu|ZeroDivisionError": (
        "what is wrong with a value in the device's memory, an index or a number that "
        "does not fit: the kernel finds it, so that the error comes late, as on a GPU"
    ),
    r"tensor_indices_or_sections to be on cpu": (
        "torch wants tensor_split()'s indices on cpu, whatever the device"
    ),
    r"test_lazy_clone_|test_parallel_cow_": (
        "`_lazy_clone` copies at once: the values are right, nothing is put off"
    ),
    r"its kernels are those of cpu, and torch has none of this operator": (
        "torch has kernels of this operator for CUDA alone, and the error says so"
    ),
    r"NPU out of memory": (
        "it asks for more memory than the device has, which is a share of the machine's"
    ),
    r"test_tensor_storage_type_": (
        "the test knows classes of storages of CUDA and of torch; those of npu are in "
        "`torch.npu`, as torch_npu has them"
    ),
    r"map2?_ is only implemented on CPU": (
        "`map_` and `map2_` call Python for each element, which torch does on cpu alone"
    ),
    r"_resize_output.*device set: it is on npu:0, expected npu": (
        "torch compares the names: the test says `npu` where the tensor says `npu:0`"
    ),
    r"_foreach_abs_slowpath_outplace_npu_bool": (
        "`abs` takes bool, as on CUDA; `_foreach_abs` does not, as on cpu"
    ),
    r"has_inf-nn\.functional\.conv_transpose3d|variant\[_convolution[.\[]": (
        "convolutions of narrow types are computed in float32, whose kernel leaves the "
        "padding out, where that of the narrow type multiplies its zeros by weights "
        "that are infinite or not a number"
    ),
    r"test_memory_format_nn_GroupNorm": (
        "torch gives the gradient of group_norm its input's layout on cpu alone, and a "
        "contiguous one on any other device"
    ),
    r"test_errors_nn_Embedding_.*on the same device": (
        "the call has two errors; that of the devices is told first, as for each other "
        "operator"
    ),
    r"test_random_from_to_.*UserWarning not triggered": (
        "torch's kernel warns of bounds that the type cannot hold, so that the warning "
        "comes late"
    ),
    r"_ConvBackend\.Overrideable": (
        "torch has one name for the convolutions of all devices that are not its own"
    ),
    r"derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "torch has no derivative of its attention's derivative: on cpu, whose kernel "
        "it is, the test is left out"
    ),
    r"test_reference_numerics_sub_npu_complex32": (
        "torch allows this type's rounding on cpu and CUDA, which it names; the value "
        "is that of cpu"
    ),
    r"test_cholesky_inverse_errors_and_warnings": (
        "torch's shape function, in Python, warns of the same with words of its own"
    ),
    r"test_upsamplingBiMode2d_nonsupported_dtypes.*uint8": (
        "the test wants an error of every device that is not cpu, where the kernels "
        "here are those of cpu"
    ),
    r"not supported on CUDA. does not match": (
        "the test wants CUDA's message of every device that is not cpu"
    ),
    r"test_sparse_low_level_compressed_generic_helpers": (
        "the test reads memory that nobody wrote, as indices"
    ),
}
UNEXPLAINED = "not explained yet"


def reason(test: str, message: str) -> str:
    """Return the class of a failure."""
    for pattern, why in REASONS.items():
        if re.search(pattern, f"{test}: {message}"):
            return why
    return UNEXPLAINED
