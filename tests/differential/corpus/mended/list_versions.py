# Operators on lists did not count what they wrote, so that backward used it.
t0 = data((3,), float32, 1).requires_grad_()
t1 = t0.exp()
torch._foreach_mul_([t1], 2)
t1.sum().backward()
