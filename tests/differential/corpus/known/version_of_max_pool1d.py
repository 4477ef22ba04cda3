t1 = data((2, 3, 4), float64, 5)
push(deterministic())
t5 = F.max_pool1d(t1, 1)
