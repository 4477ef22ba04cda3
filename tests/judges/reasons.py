"""Why a test of others fails here: classes of failures, each with its sentence."""

import re

# Patterns of "test: message", and why it is so. The first that fits counts.
REASONS = {
    r"which has no quantized tensors": (
        "the device does not support torch's quantized tensor types, which torch has "
        "deprecated; the error says what to use instead"
    ),
    r"test_op_errors\[(gather|masked_fill|scatter(_add)?)\]|test_advancedindex_"
    r"|test_masked_scatter_|with_tensor_of_scalarlist_overload|test_embedding_bag_out_of_bounds_idx"
    r"|test_one_hot_npu|test_trivial_fancy_out_of_bounds|test_unsafe_flag_"
    r"|ZeroDivisionError": (
        "the error depends on a value in device memory, such as an index. Only the "
        "kernel can find this error, so the call returns and a later call raises the "
        "error, as on a GPU"
    ),
    r"tensor_indices_or_sections to be on cpu": (
        "torch accepts a tensor as the second argument of `tensor_split()` only if "
        "that tensor is on cpu; the test passes one on npu"
    ),
    r"test_lazy_clone_|test_parallel_cow_": (
        "`torch._lazy_clone()` copies at once on npu. The values are right, but the "
        "test expects a copy only at the first write"
    ),
    r"its kernels are those of cpu, and torch has none of this operator": (
        "npu runs torch's cpu kernels, and torch has this operator for CUDA only; the "
        "error says so"
    ),
    r"NPU out of memory": (
        "the test needs more memory than the device of the test machine has"
    ),
    r"test_tensor_storage_type_": (
        "the test expects storage classes of `torch` or `torch.cuda`; those of npu "
        "are in `torch.npu`, as in torch_npu"
    ),
    r"map2?_ is only implemented on CPU": (
        "`map_()` and `map2_()` call a Python function for each element; torch "
        "implements them for cpu tensors only"
    ),
    r"_resize_output.*device set: it is on npu:0, expected npu": (
        "torch's check compares the names of devices: the test asks for `npu`, and "
        "the tensor is on `npu:0`"
    ),
    r"_foreach_abs_\w+path_outplace_npu_bool": (
        "the test expects `torch._foreach_abs()` to accept what `torch.abs()` "
        "accepts. On npu `abs()` accepts bool tensors, as on CUDA, and "
        "`_foreach_abs()` refuses them, as on cpu"
    ),
    r"has_(inf|nan)-nn\.functional\.conv_transpose|variant\[_?convolution[.\[]": (
        "npu computes half-precision convolutions in float32. Where weights are "
        "infinite or NaN, torch's half-precision kernel multiplies them by the zeros "
        "of the padding and gives NaN; the float32 kernel leaves the padding out"
    ),
    r"test_memory_format_nn_(GroupNorm|Re\w+Pad3d)": (
        "the test expects the gradient of `group_norm`, or the result of padding in "
        "three dimensions, in the memory format of the input, which torch keeps on cpu "
        "only. On npu they are contiguous, as on all other devices"
    ),
    r"test_errors_nn_Embedding_.*on the same device": (
        "the call of the test has a wrong dtype and tensors on two devices; npu "
        "reports the devices first, as for other operators"
    ),
    r"_ConvBackend\.Overrideable": (
        "the test expects the name of a convolution backend of cpu; torch reports "
        "`Overrideable` for every device that is not built into torch"
    ),
    r"derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "torch has no second derivative of the attention kernel that npu uses; on cpu "
        "the test is skipped"
    ),
    r"test_reference_numerics_(_refs_)?sub_npu_complex32": (
        "the test tolerates the rounding of complex32 on cpu and CUDA only; the "
        "result on npu equals the result on cpu"
    ),
    r"test_(cholesky_inverse|householder_product)_errors_and_warnings": (
        "both torch's shape function and torch's kernel warn that the result is "
        "resized; the test expects one warning"
    ),
    r"test_upsamplingBiMode2d_nonsupported_dtypes.*uint8": (
        "the test expects an error for the dtype uint8 on every device except cpu; "
        "npu uses the cpu kernels, which accept uint8"
    ),
    r"not supported on CUDA. does not match": (
        "the test expects CUDA's error message on every device except cpu; npu gives "
        "the message of cpu"
    ),
    r"test_sparse_low_level_constructor_overloads": (
        "the test calls torch's operator without the device of the result, and torch "
        "takes cpu then, on every device; `torch.sparse_csr_tensor()` takes the device "
        "of the values"
    ),
    r"only dense CPU tensors can be pinned": (
        "the test pins a tensor of the device; torch pins only tensors of cpu"
    ),
    r"_thnn_fused_gru_cell(\.out)?\[": (
        "the test expects a workspace of six times the hidden size; torch's kernel for "
        "CUDA, and npu, keep five"
    ),
    r"test_stride_and_storage_offset_metadata": (
        "the test expects `.cpu()` of a view to have the strides of the view; the copy "
        "has no gaps, as from any device, and only on cpu `.cpu()` is the view itself"
    ),
    r"test_transformerencoderlayer_npu": (
        "torch takes the fast path of `nn.TransformerEncoderLayer` on npu, too; the "
        "test, which is older, expects it on cpu and CUDA only"
    ),
    r"test_normal_std_error_npu": (
        "torch's kernel for CUDA waits for the smallest standard deviation and raises "
        "at the call; on npu a later call raises the error"
    ),
    r"test_grad_scaler_deprecated_warning_npu": (
        "the test makes the GradScaler of cpu on every device except CUDA, and expects "
        "the warning to name the device"
    ),
    r"_foreach_pow_slowpath_inplace_npu_complex64": (
        "the test draws other numbers on npu than on cpu. If a power is too large, "
        "torch's kernel gives infinities in dense and NaN in strided memory; npu "
        "and cpu give the same results"
    ),
    r"variant\[binary_cross_entropy\.out": (
        "the test compares with cpu, where torch's kernel gives wrong numbers if it "
        "resizes a result of no dimension; the mean on npu is right"
    ),
    r"test_im2col_col2im_out_input_alias": (
        "the test passes the input as the result, which cpu overwrites while it reads, "
        "too; on cpu the test ends before it compares"
    ),
    r"test_stable_sort_against_numpy_": (
        "the test selects with indices on cpu unless the device is CUDA, for which it "
        "ends before; torch refuses such indices on every device"
    ),
    r"test_type_promotion__refs_copysign": (
        "torch's reference in Python refuses a number on cpu beside a tensor of any "
        "other device; `torch.copysign()` accepts it"
    ),
    r"test_grad_scaling_state_dict_": (
        "the test expects a tensor of cpu on every device except CUDA"
    ),
    r"test_EmbeddingBag_per_sample_weights_and_new_offsets_.*_float16": (
        "the test draws other numbers on npu than on cpu, for which one rounding of "
        "float16 is more than it allows; of the same numbers npu and cpu give the same "
        "results"
    ),
    r"test_pinv_npu_float32": (
        "the test draws other matrices on npu than on cpu, and some are nearly "
        "singular; of the same matrix npu and cpu give the same pseudo-inverse"
    ),
    r"test_large_bmm_mm_backward_npu": "the test makes tensors of CUDA",
    r"variant\[chain_matmul\.out": (
        "with infinite numbers a complex product is NaN on cpu, too; on cpu the test "
        "ends before it compares"
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
