"""Python objects and samples are given to the ranks as to those of gloo."""

from __future__ import annotations


def test_objects_go_from_and_to_every_rank(ranks):
    ranks(
        """
        join()
        n = size
        got = [None] * n
        dist.all_gather_object(got, {"rank": rank, "of any size": "x" * 1000 * rank})
        assert [len(g["of any size"]) for g in got] == [1000 * r for r in range(n)]
        got = [None] * n if rank == 1 else None
        dist.gather_object(("from", rank), got, 1)
        assert rank != 1 or got == [("from", r) for r in range(n)]
        mine = [None]
        dist.scatter_object_list(
            mine, [f"to {r}" for r in range(n)] if rank == 0 else None, 0)
        assert mine == [f"to {rank}"]
        values = [rank, {"k": (1, 2)}] if rank == 1 else [None, None]
        dist.broadcast_object_list(values, 1)
        assert values == [1, {"k": (1, 2)}]
        if rank == 0:
            dist.send_object_list([1, "b"], 1)
        else:
            values = [None, None]
            assert dist.recv_object_list(values, 0) == 0 and values == [1, "b"]
        tensors = [None] * n
        dist.all_gather_object(tensors, torch.full((2,), float(rank)).npu())
        for r, t in enumerate(tensors):
            assert t.device.type == "npu" and t.tolist() == [r, r]
        """
    )


def test_a_sampler_gives_each_rank_its_part_of_an_epoch(ranks):
    ranks(
        """
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
        join()
        data = TensorDataset(torch.arange(11.))
        sampler = DistributedSampler(data, seed=3)
        epochs = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            loader = DataLoader(data, 3, sampler=sampler)
            mine = torch.cat([x.npu() for x, in loader])
            parts = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine)
            epochs.append(torch.cat(parts).tolist())
            assert set(epochs[-1]) == set(range(11)) and len(epochs[-1]) == 12
        assert epochs[0] != epochs[1]
        """
    )
