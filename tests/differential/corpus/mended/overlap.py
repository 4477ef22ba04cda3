# A part of a tensor is written from another part that overlaps it.
t0 = data((5,), float32, 1)
t0[1:].add_(t0[:-1])
