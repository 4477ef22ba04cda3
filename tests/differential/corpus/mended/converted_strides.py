# A kernel converts integers first, which closes gaps.
t0 = data((3, 1, 2), bool, 13).mH.unsqueeze(1).expand((3, 3, 1, 2, 1)).squeeze(3)
t1 = t0.asinh()
