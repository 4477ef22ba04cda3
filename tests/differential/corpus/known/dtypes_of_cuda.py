t0 = data((3, 3), bool, 1)
t1 = torch.trace(t0)
