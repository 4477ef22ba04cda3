"""What torch_npu has and torch.cuda has not."""
