r0 = big((2, 3), float32, 1)
r2 = graph(lambda x: x + torch.zeros((2, 4), device=x.device), r0, times=1)
