# A kernel that took one layout refuses another, at the call.
t8 = data((1, 3, 4, 4), float32, 11)
t6 = torch.isin(t8, t8)
# then, another program:
t5 = data((1, 1, 2, 4), float32, 0).contiguous(memory_format=torch.channels_last)
t2 = t5[..., :-1]
t6 = torch.isin(t2, t2)
