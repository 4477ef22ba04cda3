# A tensor of the host among those that a list operator writes.
t0 = data((3,), float32, 5)
h0 = host((), float32, 1)
torch._foreach_sub_([t0, h0], 3)
