"""Checks that only a GPU can make: the engine there against float64, and training in bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.speed import on_gpu
from flair_nas import SearchedRNN, load_genotype

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


@pytest.fixture(autouse=True)
def own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "auto")  # the benchmark sets it


@pytest.mark.parametrize("case", on_gpu.cases_of(toy=True))
def test_layers_agree_with_float64(case: str) -> None:
    found = on_gpu.measure(case, torch.device("cuda"), 0.1)
    assert all(found["right"].values()) and "failed" not in found, found


def test_autocast_training_learns() -> None:
    """Products in bfloat16, and gradients that are summed over two batches."""
    torch.manual_seed(1)
    layer, out = SearchedRNN(7, 16, load_genotype("darts-v2"), recurrent_dropout=0.1).cuda(), nn.Linear(16, 1).cuda()
    optimizer = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=0.01)
    data = torch.randn(12, 16, 7, device="cuda")
    target, losses = data.cumsum(0).sum(-1, keepdim=True).sign(), []
    for _ in range(60):
        optimizer.zero_grad()
        for part in (slice(0, 8), slice(8, 16)):
            with torch.autocast("cuda", torch.bfloat16):
                scores = out(layer(data[:, part])[0])
            loss = nn.functional.soft_margin_loss(scores.float(), target[:, part])
            loss.backward()
        losses.append(float(loss))
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
