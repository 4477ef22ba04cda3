# torch's own name for "zero everywhere" has no memory, and was copied from.
t0 = data((4, 2, 1, 1), float32, 1).contiguous(memory_format=torch.channels_last)
t0.requires_grad_(True)
t1 = t0.sgn()
t1.backward(data((1,), float32, 11).expand((4, 2, 1, 1)), create_graph=True)
