# What shapes alone forbid is told by the device, after the call.
t1 = data((0,), float32, 4)
t1.unsqueeze_(0)
t0 = t1.index_select(1, torch.tensor([0, 0, 0], device=D, dtype=int64))
