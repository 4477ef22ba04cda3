# The fuzzer itself died of a view's grad_fn, which raises IndexError.
t0 = data((2, 3), float32, 1).requires_grad_() * 1
push(torch.autograd._force_original_view_tracking(True))
t1 = t0.select(1, 1)
push(torch.no_grad())
t2 = torch.exp(data((5,), float32, 2), out=t0)
