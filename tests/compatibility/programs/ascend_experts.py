"""a mixture of experts as MindSpeed dispatches it, with torch_npu's operators: 6 steps.

Without torch_npu every expert computes every token, in plain torch.
"""

import torch
from torch import nn

try:
    import torch_npu
except ImportError:
    torch_npu = None

LIBRARY = "torch"
ALIAS = True

EXPERTS, CHOSEN, FEATURES, HIDDEN = 4, 2, 16, 24


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(FEATURES, EXPERTS)
        scale = FEATURES**-0.5
        self.up = nn.Parameter(torch.randn(EXPERTS, FEATURES, 2 * HIDDEN) * scale)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, FEATURES) * scale)

    def dispatched(self, x):
        shares, experts, _ = torch_npu.npu_moe_gating_top_k_softmax(
            self.router(x), None, k=CHOSEN
        )
        rows, places = torch_npu.npu_moe_token_permute(x, experts)
        sizes = torch.bincount(experts.flatten(), minlength=EXPERTS)
        for weight, active in ((self.up, True), (self.down, False)):
            [rows] = torch_npu.npu_grouped_matmul(
                [rows],
                [weight],
                group_list=sizes,
                group_list_type=1,
                group_type=0,
                split_item=2,
            )
            rows = torch_npu.npu_swiglu(rows) if active else rows
        return torch_npu.npu_moe_token_unpermute(rows, places, probs=shares)

    def routed(self, x):
        """Return the same by the operators of inference."""
        shares, experts, numbers = torch_npu.npu_moe_gating_top_k_softmax(
            self.router(x), k=CHOSEN
        )
        rows, places, sorted_experts = torch_npu.npu_moe_init_routing(
            x, row_idx=numbers, expert_idx=experts, active_num=x.shape[0]
        )
        ends = torch_npu.npu_moe_compute_expert_tokens(sorted_experts, EXPERTS)
        how = {"group_list": ends.to(torch.int64), "split_item": 2, "group_type": 0}
        [rows] = torch_npu.npu_grouped_matmul([rows], [self.up], **how)
        [rows] = torch_npu.npu_grouped_matmul(
            [torch_npu.npu_swiglu(rows)], [self.down], **how
        )
        return torch_npu.npu_moe_finalize_routing(
            rows, None, None, None, shares, places, experts
        )

    def dense(self, x):
        shares = self.router(x).softmax(-1)
        least = shares.topk(CHOSEN).values[:, -1:]
        shares = shares * (shares >= least)
        left, right = (x @ self.up).chunk(2, -1)
        rows = (nn.functional.silu(left) * right) @ self.down
        return (rows * shares.T[..., None]).sum(0)

    def forward(self, x):
        return self.dispatched(x) if torch_npu else self.dense(x)


def run(device):
    torch.manual_seed(0)
    model = Experts().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(6):
        x = torch.randn(20, FEATURES).to(device)
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        served = model.routed(x) if torch_npu else model.dense(x)
    return [*losses, served.abs().sum().item()]
