# What a kernel refuses of a tensor without elements depends on which dimension
# has none.
t0 = data((0, 3), float32, 11)
t1 = t0.max(-1)
# then, another program:
t0 = data((3, 0), float32, 5)
t1 = t0.max(-1)
