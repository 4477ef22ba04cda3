# What shapes alone forbid is told by the device, once another shape was allowed.
t0 = data((1, 2), float32, 4)
t1 = t0.index_select(1, torch.tensor([0, 0, 0], device=D))
t2 = data((1, 0), float32, 4)
t3 = t2.index_select(1, torch.tensor([0, 0, 0], device=D))
