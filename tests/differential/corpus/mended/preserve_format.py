# resize_ refuses preserve_format in other words.
t0 = data((5,), float32, 5)
t0.resize_(2, 2, memory_format=torch.preserve_format)
