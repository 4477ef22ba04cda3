t0 = data((2, 1, 3), float64, 14).mT
t1 = F.conv1d(t0.mT, data((2, 1, 1), float64, 8)).transpose(1, 2).contiguous().mT
t2 = F.max_pool1d(t1, 1)
