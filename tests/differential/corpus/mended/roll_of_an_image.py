t3 = data((3, 3, 2, 3), float32, 1).contiguous(memory_format=torch.channels_last)
t8 = torch.roll(t3, 2, 1)
# then, another program:
t3 = data((4, 2, 3, 2), float32, 8).contiguous(memory_format=torch.channels_last)
t2 = torch.roll(t3, 2, 1)
