# program: beyond_an_empty_tensor
t3 = data((3, 0), uint8, 3)
t7 = data((2, 2, 4, 4, 4), float32, 13).contiguous(memory_format=torch.channels_last_3d)
t6 = torch.cumsum(t3, 0, out=t7)
t8 = t6.index_copy_(1, torch.tensor([0], device=D), data((3, 1), float32, 11))

# program: converted_strides
# A kernel converts integers first, which closes gaps.
t0 = data((3, 1, 2), bool, 13).mH.unsqueeze(1).expand((3, 3, 1, 2, 1)).squeeze(3)
t1 = t0.asinh()

# program: copy_of_a_zero_tensor
# torch's own name for "zero everywhere" has no memory, and was copied from.
t0 = data((4, 2, 1, 1), float32, 1).contiguous(memory_format=torch.channels_last)
t0.requires_grad_(True)
t1 = t0.sgn()
t1.backward(data((1,), float32, 11).expand((4, 2, 1, 1)), create_graph=True)

# program: copy_of_itself
# A copy of the same elements does nothing, even where one is there twice, and an
# overlap is told before a shape that does not fit.
t0 = data((1, 2, 4, 1), float32, 20).contiguous(memory_format=torch.channels_last)
t1 = t0.expand((3, 1, 2, 4, 1))
t1[1:].copy_(t1[:-1])
# then, another program:
t2 = data((6, 7), int32, 0)
t2.copy_(t2.mT)

# program: copy_of_wrong_shape
# copy_ spoke of expand's shapes.
t0 = data((2, 3), float32, 1)
t0.copy_(data((3, 2), float32, 1))
t1 = data((1, 3), float32, 1)
t1.copy_(t0)

# program: empty_in_another_dimension
# What a kernel refuses of a tensor without elements depends on which dimension
# has none.
t0 = data((0, 3), float32, 11)
t1 = t0.max(-1)
# then, another program:
t0 = data((3, 0), float32, 5)
t1 = t0.max(-1)

# program: grown_into_its_input
t5 = data((2, 3, 2, 5), int8, 7)
t1 = torch.broadcast_tensors(t5, t5)[0]
t6 = t1.narrow(-2, 0, 0)
t2 = torch.cat([t1, data((2, 3, 2, 5), int8, 15)], out=t6)

# program: grown_over_its_input
t6 = data((2, 2, 2, 1, 4), float32, 19).contiguous(memory_format=torch.channels_last_3d)
t2 = t6.transpose(-5, 0)
t3 = t6.broadcast_to((3, 2, 2, 2, 1, 4))
t5 = t3.view_as(t3)
t4 = torch.exp(t5, out=t2)

# program: late_argument_error
# What shapes alone forbid is told by the device, once another shape was allowed.
t0 = data((1, 2), float32, 4)
t1 = t0.index_select(1, torch.tensor([0, 0, 0], device=D))
t2 = data((1, 0), float32, 4)
t3 = t2.index_select(1, torch.tensor([0, 0, 0], device=D))

# program: ldexp_of_bool
t0 = data((2, 3, 1, 2, 1), float32, 20)
t8 = torch.ldexp(t0, torch.tensor(True))

# program: list_of_inference
# Operators on lists wrote to inference tensors outside inference mode.
with torch.inference_mode():
    t0 = data((3,), float32, 1)
with torch.inference_mode():
    torch._foreach_add_([t0], 1.0)
t1 = data((3,), float32, 2)
torch._foreach_add_([t1, t0], 1.0)

# program: list_versions
# Operators on lists did not count what they wrote, so that backward used it.
t0 = data((3,), float32, 1).requires_grad_()
t1 = t0.exp()
torch._foreach_mul_([t1], 2)
t1.sum().backward()

# program: list_with_host_scalar
# A tensor of the host among those that a list operator writes.
t0 = data((3,), float32, 5)
h0 = host((), float32, 1)
torch._foreach_sub_([t0, h0], 3)

# program: one_tensor_twice
# A kernel that asks whether its result is its argument gets the answer of cpu.
t0 = data((4, 4, 1, 4, 4), float32, 18).contiguous(memory_format=torch.channels_last_3d)
t1 = torch.tril(t0, out=t0)
# then, another program:
t0 = data((2, 0, 3), float32, 7)
t1 = torch.sum(t0, 0, out=t0)
# then, another program:
t0 = data((2, 0, 3), int64, 17)
t1 = torch.cat([t0, t0], out=t0)

# program: overlap
# A part of a tensor is written from another part that overlaps it.
t0 = data((5,), float32, 1)
t0[1:].add_(t0[:-1])

# program: own_input_resized
# An output that is also an input must have the result's shape.
t0 = data((2, 1, 3, 2), int64, 4)
t1 = data((1,), float32, 19)
t2 = torch.where(t0 > 0, t0, t1, out=t1)

# program: polygamma_of_half
# cpu has a kernel for float16, which npu did not use: it computed in float32.
t0 = data((2, 3), float16, 1)
t1 = torch.polygamma(3, t0)

# program: preserve_format
# resize_ refuses preserve_format in other words.
t0 = data((5,), float32, 5)
t0.resize_(2, 2, memory_format=torch.preserve_format)

# program: refused_by_layout
# A kernel that took one layout refuses another, at the call.
t8 = data((1, 3, 4, 4), float32, 11)
t6 = torch.isin(t8, t8)
# then, another program:
t5 = data((1, 1, 2, 4), float32, 0).contiguous(memory_format=torch.channels_last)
t2 = t5[..., :-1]
t6 = torch.isin(t2, t2)

# program: roll_of_an_image
t3 = data((3, 3, 2, 3), float32, 1).contiguous(memory_format=torch.channels_last)
t8 = torch.roll(t3, 2, 1)
# then, another program:
t3 = data((4, 2, 3, 2), float32, 8).contiguous(memory_format=torch.channels_last)
t2 = torch.roll(t3, 2, 1)

# program: set_to_the_same_size
# set_() to the same sizes keeps strides, as resize_() does.
t0 = data((3, 0), complex64, 7)
t1 = t0.diagonal(0)
t1.set_(t0.untyped_storage(), 0, (0,))
# then, another program:
t0 = data((3, 3), float32, 7)
t1 = t0.t()
t1.set_(t0.untyped_storage(), 0, (3, 3))

# program: strides
# The layout of a result where dimensions of one element leave a choice.
t0 = data((1, 3, 1, 3, 4), float32, 0).contiguous(memory_format=torch.channels_last_3d)
t1 = torch.add(t0, t0, out=torch.empty(0, device=D))

# program: strides_of_one_element
# What was learned of a call's strides does not replace those of another size.
t3 = data((1, 4, 4, 1, 2), float32, 15).contiguous(memory_format=torch.channels_last_3d)
t8 = torch.cat([t3, t3], 1)
t6 = torch.allclose(t3, t3)
t7 = t8[::2]
t0 = F.l1_loss(t7, t7, reduction="none")

# program: view_of_a_reshaped_base
# The fuzzer itself died of a view's grad_fn, which raises IndexError.
t0 = data((2, 3), float32, 1).requires_grad_() * 1
push(torch.autograd._force_original_view_tracking(True))
t1 = t0.select(1, 1)
push(torch.no_grad())
t2 = torch.exp(data((5,), float32, 2), out=t0)

# program: words_in_a_capture
r0 = big((2, 3), float32, 1)
r2 = graph(lambda x: x + torch.zeros((2, 4), device=x.device), r0, times=1)
