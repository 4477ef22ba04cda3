"""Groups that are parts of another: split_group, and a mesh that is made so."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("backend", ["hccl", "cpu:gloo,npu:hccl"])
def test_a_bound_group_is_split_and_makes_a_mesh(ranks, backend: str):
    ranks(
        """
        from torch.distributed.device_mesh import init_device_mesh
        join(BACKEND, device_id=torch.device("npu:0"))
        def total(group, on="npu"):
            t = torch.tensor([float(rank)]).to(on)
            dist.all_reduce(t, group=group)
            return t.item()
        filtered = {} if dist.get_backend() == "hccl" else {"backend": "npu:hccl"}
        for parts in ([[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1], [2], [3]]):
            mine = next(part for part in parts if rank in part)
            group = dist.split_group(split_ranks=parts, **filtered)
            assert dist.get_process_group_ranks(group) == mine
            assert total(group) == sum(mine)
        # One of it again, whose ranks the job calls otherwise.
        outer = dist.split_group(split_ranks=[[1, 3], [0, 2]], **filtered)
        inner = dist.split_group(outer, split_ranks=[[0], [1]], **filtered)
        assert dist.get_process_group_ranks(inner) == [rank]
        assert total(inner) == rank
        if rank < 2:  # the others are in none of its parts
            assert total(dist.new_group([0, 1])) == 1
        else:
            dist.new_group([0, 1])
        if not filtered:
            mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("a", "b"))
            assert total(mesh.get_group("a")) == (2 if rank % 2 == 0 else 4)
            assert total(mesh.get_group("b")) == (1 if rank < 2 else 5)
        t = torch.ones(1).npu()
        dist.all_reduce(t)
        assert t.item() == 4  # the whole is as it was
        """.replace("BACKEND", repr(backend)),
        4,
    )
