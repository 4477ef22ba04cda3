# copy_ spoke of expand's shapes.
t0 = data((2, 3), float32, 1)
t0.copy_(data((3, 2), float32, 1))
t1 = data((1, 3), float32, 1)
t1.copy_(t0)
