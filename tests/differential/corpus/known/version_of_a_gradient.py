t0 = data((3, 3, 3, 1), float32, 10).contiguous(memory_format=torch.channels_last)
t0.requires_grad_(True)
t1 = F.group_norm(t0, 1, data((3,), float32, 17), data((3,), float32, 17))
t1.sum().backward()
