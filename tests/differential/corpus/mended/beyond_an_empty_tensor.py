t3 = data((3, 0), uint8, 3)
t7 = data((2, 2, 4, 4, 4), float32, 13).contiguous(memory_format=torch.channels_last_3d)
t6 = torch.cumsum(t3, 0, out=t7)
t8 = t6.index_copy_(1, torch.tensor([0], device=D), data((3, 1), float32, 11))
