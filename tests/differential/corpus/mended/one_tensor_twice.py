# A kernel that asks whether its result is its argument gets the answer of cpu.
t0 = data((4, 4, 1, 4, 4), float32, 18).contiguous(memory_format=torch.channels_last_3d)
t1 = torch.tril(t0, out=t0)
# then, another program:
t0 = data((2, 0, 3), float32, 7)
t1 = torch.sum(t0, 0, out=t0)
# then, another program:
t0 = data((2, 0, 3), int64, 17)
t1 = torch.cat([t0, t0], out=t0)
