# set_() to the same sizes keeps strides, as resize_() does.
t0 = data((3, 0), complex64, 7)
t1 = t0.diagonal(0)
t1.set_(t0.untyped_storage(), 0, (0,))
# then, another program:
t0 = data((3, 3), float32, 7)
t1 = t0.t()
t1.set_(t0.untyped_storage(), 0, (3, 3))
