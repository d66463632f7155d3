"""What only a GPU can tell: every engine there against the equations in float64, and CUDA graphs as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from flair_nas import SearchedRNN
from flair_nas.kernels import graphs

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import gpu_cases

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]
CASES = {case.name: case for case in gpu_cases.checks(torch.device("cuda"), gpu_cases.ENGINES)}


@pytest.fixture(autouse=True)
def own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a test sets of the engine is not for the next one."""
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "auto")


@pytest.mark.parametrize("name", CASES)
def test_an_engine_agrees_with_the_equations(name: str) -> None:
    found = CASES[name].work(60.0)
    assert found["ok"], found


def test_sequences_under_way_together_and_dropped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "graphs")
    graphs._graphs.clear()
    layer = SearchedRNN(7, 5, "i-darts-ptb").cuda()
    data = [torch.randn(8, 8, 7, device="cuda", requires_grad=True) for _ in range(2)]
    outputs = [layer(one)[0] for one in data]
    gradients = [torch.autograd.grad(output.square().sum(), one)[0] for output, one in zip(outputs, data)]
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    for one, gradient in zip(data, gradients):
        wanted = torch.autograd.grad(layer(one)[0].square().sum(), one)[0]
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-5)
    assert len(graphs._graphs) == 2 and all(graph.is_free() for graph in graphs._graphs.values())


def test_autocast_training_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in bfloat16, weights that change between launches, gradients that are summed over two batches."""
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "graphs")
    torch.manual_seed(1)
    layer, out = SearchedRNN(7, 16, "darts-v2", recurrent_dropout=0.1).cuda(), nn.Linear(16, 1).cuda()
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
