"""Parts of one storage: only what shares bytes needs an order."""

import torch

npu = torch.npu


def _both(x):
    """Give x to two streams that are not ordered with each other."""
    one, two = npu.Stream(), npu.Stream()
    npu.synchronize()
    return one, two


def correct_two_halves():
    x = torch.zeros(100, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:50].fill_(1)
    with npu.stream(two):
        x[50:].fill_(2)
    npu.synchronize()


def racy_two_halves_that_share_one_element():
    "write/write"
    x = torch.zeros(100, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:51].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[50:].fill_(2)  # second: aten::fill_.Scalar


def correct_interleaved_columns():
    x = torch.zeros(64, 8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:, 0::2].fill_(1)
    with npu.stream(two):
        x[:, 1::2].fill_(2)
    npu.synchronize()


def racy_columns_that_meet():
    "write/write"
    x = torch.zeros(64, 8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:, 0::2].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[:, 2:4].fill_(2)  # second: aten::fill_.Scalar


def correct_one_column_each():
    x = torch.zeros(64, 8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:, 3].fill_(1)
    with npu.stream(two):
        y = x[:, 4] + 1
    npu.synchronize()
    return y


def racy_row_and_column():
    "read/write"
    x = torch.zeros(64, 8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[5].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[:, 4] + 1  # second: aten::add.Tensor


def correct_row_and_shorter_column():
    x = torch.zeros(64, 8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[5].fill_(1)
    with npu.stream(two):
        y = x[6:, 4] + 1
    npu.synchronize()
    return y


def racy_transposed_view():
    "read/write"
    x = torch.zeros(16, 16, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x.t()[3].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[:, 3] + 1  # second: aten::add.Tensor


def correct_transposed_view_of_another_column():
    x = torch.zeros(16, 16, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x.t()[3].fill_(1)
    with npu.stream(two):
        y = x[:, 4] + 1
    npu.synchronize()
    return y


def correct_checkerboard_by_strides():
    x = torch.zeros(64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x.as_strided((10,), (6,), 0).fill_(1)
    with npu.stream(two):
        x.as_strided((15,), (4,), 1).fill_(2)
    npu.synchronize()


def racy_strides_that_meet_late():
    "write/write"
    x = torch.zeros(64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x.as_strided((10,), (6,), 1).fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x.as_strided((11,), (5,), 3).fill_(2)  # second: aten::fill_.Scalar


def correct_blocks_of_a_matrix():
    x = torch.zeros(32, 32, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:16, :16].fill_(1)
        x[16:, 16:].fill_(1)
    with npu.stream(two):
        x[:16, 16:].fill_(2)
        x[16:, :16].fill_(2)
    npu.synchronize()


def racy_blocks_of_a_matrix_one_too_wide():
    "write/write"
    x = torch.zeros(32, 32, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[:16, :17].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[:16, 16:].fill_(2)  # second: aten::fill_.Scalar


def racy_expanded_tensor():
    "read/write"
    x = torch.zeros(8, 1, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        y = x.expand(8, 8) + 1  # first: aten::add.Tensor
    with npu.stream(two):
        x[7].fill_(1)  # second: aten::fill_.Scalar
    return y


def correct_expanded_rows():
    x = torch.zeros(8, 1, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        y = x[:4].expand(4, 8) + 1
    with npu.stream(two):
        x[4:].fill_(1)
    npu.synchronize()
    return y


def racy_same_bytes_under_another_type():
    "write/write"
    x = torch.zeros(64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[10:12].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x.view(torch.int16)[23].fill_(2)  # second: aten::fill_.Scalar


def correct_other_bytes_under_another_type():
    x = torch.zeros(64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x[10:12].fill_(1)
    with npu.stream(two):
        x.view(torch.int16)[24].fill_(2)
    npu.synchronize()


def racy_real_part_of_a_complex_tensor():
    "write/write"
    x = torch.zeros(16, dtype=torch.complex64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        torch.view_as_real(x)[:, 0].fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x.fill_(1)  # second: aten::fill_.Scalar


def correct_real_and_imaginary_part():
    x = torch.zeros(16, dtype=torch.complex64, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        torch.view_as_real(x)[:, 0].fill_(1)
    with npu.stream(two):
        torch.view_as_real(x)[:, 1].fill_(2)
    npu.synchronize()


def racy_one_of_many_rows():
    "read/write"
    x = torch.zeros(40, 16, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        for i in range(40):
            x[i].fill_(i)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x[17] + 1  # second: aten::add.Tensor


def racy_argument_of_a_list():
    "read/write"
    x, y = torch.zeros(8, device="npu"), torch.zeros(8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        y.fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        torch.cat([x, y])  # second: aten::cat


def racy_foreach_writes_a_list():
    "write/write"
    x, y = torch.zeros(8, device="npu"), torch.zeros(8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        torch._foreach_add_([x, y], 1)  # first: aten::_foreach_add_.Scalar
    with npu.stream(two):
        y.fill_(1)  # second: aten::fill_.Scalar


def correct_empty_part():
    x = torch.zeros(8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        x.fill_(1)
    with npu.stream(two):
        x[4:4].fill_(1)
    npu.synchronize()


def _qubits(x, *fixed):
    """Return the elements of x with these indices, one per second qubit."""
    return x.view([2] * 14)[tuple(i for q in fixed for i in (slice(None), q))]


def racy_views_of_many_dimensions():
    "read/write"
    x = torch.zeros(2**14, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        _qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        x + 1  # second: aten::add.Tensor


def racy_views_of_many_dimensions_that_share_half():
    "write/write"
    x = torch.zeros(2**14, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        _qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        _qubits(x, 0, 0, 0, 0, 0, 0).fill_(2)  # second: aten::fill_.Scalar


def correct_views_of_many_dimensions_with_another_qubit():
    x = torch.zeros(2**14, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        _qubits(x, 0, 0, 0, 0, 0, 0, 0).fill_(1)
    with npu.stream(two):
        _qubits(x, 0, 0, 0, 0, 0, 0, 1).fill_(2)
        _qubits(x, 1).fill_(2)
    npu.synchronize()


def racy_tensor_66_000_of_a_list():
    "read/write"
    x, y = torch.zeros(1, device="npu"), torch.zeros(8, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        y.fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        torch.cat([x] * 66_000 + [y])  # second: aten::cat


def racy_result_of_66_000_tensors():
    "write/write"
    x, y = torch.zeros(1, device="npu"), torch.zeros(66_000, device="npu")
    one, two = _both(x)
    with npu.stream(one):
        y.fill_(1)  # first: aten::fill_.Scalar
    with npu.stream(two):
        torch.cat([x] * 66_000, out=y)  # second: aten::cat.out
