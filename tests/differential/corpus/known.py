# program: dtypes_of_cuda
t0 = data((3, 3), bool, 1)
t1 = torch.trace(t0)

# program: node_of_linear
t5 = data((1, 1, 3, 1), bfloat16, 16).requires_grad_()
t6 = F.linear(t5, data((2, 1), bfloat16, 11), data((2,), bfloat16, 16))

# program: strides_of_max_pool1d
t0 = data((2, 1, 3), float64, 14).mT
t1 = F.conv1d(t0.mT, data((2, 1, 1), float64, 8)).transpose(1, 2).contiguous().mT
t2 = F.max_pool1d(t1, 1)

# program: version_of_a_gradient
t0 = data((3, 3, 3, 1), float32, 10).contiguous(memory_format=torch.channels_last)
t0.requires_grad_(True)
t1 = F.group_norm(t0, 1, data((3,), float32, 17), data((3,), float32, 17))
t1.sum().backward()

# program: version_of_matmul_out
t2 = data((4, 1, 4, 1), float32, 4).contiguous(memory_format=torch.channels_last)
t7 = torch.cdist(t2, t2)
t4 = torch.matmul(t7, t7, out=torch.empty(0, device=D))

# program: version_of_max_pool1d
t1 = data((2, 3, 4), float64, 5)
push(deterministic())
t5 = F.max_pool1d(t1, 1)
