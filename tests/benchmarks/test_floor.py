"""The products of `benchmarks/speed/product_floor.py`: all that the cell needs, in every form."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from benchmarks.speed import product_floor as floor
from flair_nas import Genotype, load_genotype

GENOTYPES = {
    "darts-v2": load_genotype("darts-v2"),
    "i-darts-ptb": load_genotype("i-darts-ptb"),
    "ess-ptb": load_genotype("ess-ptb"),
    "dead nodes": Genotype.parse("tanh0-relu1-relu0-tanh3:2"),
    "two edges": Genotype.parse("tanh0-relu0+tanh1-relu1+tanh1"),
    "plain": dataclasses.replace(load_genotype("darts-v1"), highway=False),
    "state gate": dataclasses.replace(load_genotype("ess-ptb"), input_gate=None),
}
GENOTYPES["elementwise"] = dataclasses.replace(GENOTYPES["two edges"], recurrence="elementwise")
FORMS = floor.MATRIX_FORMS + floor.LINEAR_FORMS + floor.PACKED_FORMS + floor.BATCH_FORMS


def done(calls: list[floor.Call]) -> int:
    return sum(map(floor.multiply_adds_of, calls))


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "PATIENCE", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "squares"),
    [("darts-v2", 20), ("i-darts-ptb", 20), ("ess-ptb", 30), ("dead nodes", 8), ("two edges", 12), ("elementwise", 10)],
)
def test_the_equations_have_so_many_products(name: str, squares: int) -> None:
    # 2 H² for x, for h and for each pair of nodes; ESS: 3 entries and 2 inner products in each of both gates, H² each
    assert floor.multiply_adds(GENOTYPES[name], 16, 16) == squares * 16**2


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", GENOTYPES)
def test_the_calls_do_the_products_of_the_equations(name: str, training: bool) -> None:
    sizes = [3, 3, 2, 1]
    calls = floor.build(floor.plan_of(GENOTYPES[name], 6, 4), sizes, training, torch.float32)
    floor.run(calls)
    assert done(calls) == floor.multiply_adds(GENOTYPES[name], 6, 4) * sum(sizes) * (3 if training else 1)


@pytest.mark.parametrize("history", [0, 3])
def test_both_orders_of_a_supernet_do_the_same(history: int) -> None:
    size, tokens = 4, 6
    squares = 4 + 2 * 36 + (2 * (3 + 3) if history else 0)
    for plan in floor.supernet_plans(size, size, 8, history):
        calls = floor.build(plan, [3, 3], True, torch.float32)
        floor.run(calls)
        assert done(calls) == 3 * tokens * squares * size**2


def test_nodes_that_are_ready_together_share_a_stage() -> None:
    names = [[product.name for product in stage] for stage in floor.plan_of(GENOTYPES["darts-v2"], 4, 4).stages]
    nodes = [[tail for _, tail in stage] for stage in names[1:]]
    assert nodes == [[0], [1], [2, 3], [5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_every_form_computes_the_product(form: floor.Form, dtype: torch.dtype) -> None:
    if form.kind in ("linear", "packed") and not floor.has_linear(dtype):
        pytest.skip(f"oneDNN multiplies no {dtype} on this processor")
    matrices, count = floor.Matrices(dtype), (2,) if form.kind == "bmm" else ()
    found = floor.make_call(form, matrices, "w", *count, 5, 7, 3)()
    (weight,) = matrices.weights.values()
    weight = weight.to_dense() if weight.is_mkldnn else weight  # [5, 7]
    vectors = matrices.passing("right", *count, 7, 3, by_columns=form.right_by_columns)
    tolerance = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    found = (found.mT if form.swapped else found).double()
    torch.testing.assert_close(found, weight.double() @ vectors.double(), **tolerance)
