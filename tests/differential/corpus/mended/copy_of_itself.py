# A copy of the same elements does nothing, even where one is there twice, and an
# overlap is told before a shape that does not fit.
t0 = data((1, 2, 4, 1), float32, 20).contiguous(memory_format=torch.channels_last)
t1 = t0.expand((3, 1, 2, 4, 1))
t1[1:].copy_(t1[:-1])
# then, another program:
t2 = data((6, 7), int32, 0)
t2.copy_(t2.mT)
