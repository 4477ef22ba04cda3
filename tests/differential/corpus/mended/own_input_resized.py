# An output that is also an input must have the result's shape.
t0 = data((2, 1, 3, 2), int64, 4)
t1 = data((1,), float32, 19)
t2 = torch.where(t0 > 0, t0, t1, out=t1)
