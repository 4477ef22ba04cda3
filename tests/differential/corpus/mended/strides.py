# The layout of a result where dimensions of one element leave a choice.
t0 = data((1, 3, 1, 3, 4), float32, 0).contiguous(memory_format=torch.channels_last_3d)
t1 = torch.add(t0, t0, out=torch.empty(0, device=D))
