t5 = data((1, 1, 3, 1), bfloat16, 16).requires_grad_()
t6 = F.linear(t5, data((2, 1), bfloat16, 11), data((2,), bfloat16, 16))
