"""Relaxations and what is derived from architecture weights, against an independent oracle."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from reference_supernet import as_sets, derive_nodes, relax
from reference_supernet import derive_gate as gate_by_brute_force
from reference_supernet import mean_absolute_deviation as deviation_by_the_oracle
from torch import Tensor

from flair_nas.genotype import Edge, Genotype
from flair_nas.supernet.derive import derive, derive_gate
from flair_nas.supernet.relaxation import RELAXATIONS, deviations
from flair_nas.supernet.relaxation import relax as relax_arch

relaxations = pytest.mark.parametrize("relaxation", ["darts", "i-darts"])


def relaxed(arch: Tensor, relaxation: str) -> Tensor:
    """The oracle's probabilities as a tensor [E, 5]."""
    return torch.stack([torch.stack(row) for row in relax(arch, relaxation)])


@relaxations
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_relaxation_equals_the_oracle(nodes: int, relaxation: str) -> None:
    arch = torch.randn(nodes * (nodes + 1) // 2, 5, dtype=torch.float64) * 3
    arch[0, 0] = 800.0  # the exponential of it is not finite
    arch.requires_grad_()
    actual, expected = RELAXATIONS[relaxation](arch), relaxed(arch, relaxation)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-14)
    weights = torch.randn(actual.shape, dtype=torch.float64)
    found, wanted = (torch.autograd.grad((shares * weights).sum(), arch)[0] for shares in (actual, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
    total = len(arch) if relaxation == "darts" else nodes
    assert actual.sum().item() == pytest.approx(total, abs=1e-12)
    assert torch.equal(relax_arch(arch, relaxation), actual)


@relaxations
def test_mean_absolute_deviation_equals_the_oracle(relaxation: str) -> None:
    assert deviations(torch.full((10, 5), 7.0), relaxation).max().item() == pytest.approx(0, abs=1e-7)
    arch = torch.randn(10, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(6), requires_grad=True)
    expected = deviation_by_the_oracle(arch, relaxation)
    assert expected > 0.01
    assert deviations(arch, relaxation).mean().item() == pytest.approx(expected, rel=1e-12)


def grids(rows: int) -> st.SearchStrategy[list[list[float]]]:
    """Architecture weights on a coarse grid: ties are common, and what is no tie differs clearly."""
    return st.lists(st.lists(st.integers(-3, 3).map(lambda n: n / 2), min_size=5, max_size=5), min_size=rows,
                    max_size=rows)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200, derandomize=True, database=None)
@given(
    data=st.data(), nodes=st.integers(1, 5), avoid_first=st.booleans(), dtype=st.sampled_from(["float32", "float64"])
)
def test_deriving_equals_brute_force(data: st.DataObject, nodes: int, avoid_first: bool, dtype: str) -> None:
    arch = data.draw(grids(nodes * (nodes + 1) // 2))
    tensor = torch.tensor(arch, dtype=getattr(torch, dtype))
    for relaxation in ("darts", "i-darts"):
        for n in range(1, 6):  # a node with fewer candidates keeps all that it has
            expected = derive_nodes(arch, relaxation, n, avoid_first)
            actual = derive(tensor, relaxation, edges_per_node=n, avoid_first=avoid_first)
            assert as_sets(actual) == expected, (relaxation, n)
            Genotype(actual)  # a genotype can be made of it


@pytest.mark.slow
@settings(max_examples=100, derandomize=True, database=None)
@given(data=st.data(), history=st.integers(1, 4), n=st.integers(1, 3), relaxation=st.sampled_from(["darts", "i-darts"]))
def test_deriving_gates_equals_brute_force(data: st.DataObject, history: int, n: int, relaxation: str) -> None:
    entry, edges = data.draw(grids(history)), data.draw(grids(history * (history - 1) // 2))
    expected = gate_by_brute_force(entry, edges, relaxation, n)
    gate = derive_gate(torch.tensor(entry), torch.tensor(edges).reshape(-1, 5), relaxation, n)
    assert [node.entry for node in gate.nodes] == [op for op, _ in expected]
    assert as_sets([node.edges for node in gate.nodes]) == [kept for _, kept in expected]


@relaxations
def test_ties_go_to_the_smaller_tail_and_then_the_order_of_operations(relaxation: str) -> None:
    assert derive(torch.zeros(6, 5), relaxation) == ((Edge("tanh", 0),),) * 3
    favoured = torch.zeros(6, 5)
    favoured[:, 2:] = 1.0
    assert derive(favoured, relaxation) == ((Edge("relu", 0),),) * 3
    if relaxation == "i-darts":
        two = derive(favoured, relaxation, edges_per_node=2, avoid_first=True)
        assert as_sets(two) == [{("relu", 0), ("sigmoid", 0)}, *[{("relu", 1), ("sigmoid", 1)}] * 2]


@pytest.mark.parametrize("shape", [(4, 5), (3, 4), (5,)])
@relaxations
def test_deriving_refuses_matrices_that_are_no_architecture(relaxation: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        derive(torch.zeros(shape), relaxation)


@relaxations
def test_deriving_refuses_what_has_no_answer(relaxation: str) -> None:
    for count in (0, -1):
        with pytest.raises(ValueError, match="edges_per_node"):
            derive(torch.zeros(3, 5), relaxation, edges_per_node=count)
        with pytest.raises(ValueError, match="edges_per_node"):
            derive_gate(torch.zeros(3, 5), torch.zeros(3, 5), relaxation, edges_per_node=count)
    broken = torch.zeros(3, 5)
    broken[1, 1] = float("nan")
    with pytest.raises(ValueError, match="(?i)nan|finite"):
        derive(broken, relaxation)
