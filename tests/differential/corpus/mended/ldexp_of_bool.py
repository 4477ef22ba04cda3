t0 = data((2, 3, 1, 2, 1), float32, 20)
t8 = torch.ldexp(t0, torch.tensor(True))
