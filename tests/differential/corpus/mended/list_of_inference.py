# Operators on lists wrote to inference tensors outside inference mode.
with torch.inference_mode():
    t0 = data((3,), float32, 1)
with torch.inference_mode():
    torch._foreach_add_([t0], 1.0)
t1 = data((3,), float32, 2)
torch._foreach_add_([t1, t0], 1.0)
