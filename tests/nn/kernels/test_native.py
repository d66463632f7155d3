"""Native kernels compared with the equations, beyond `test_recurrent.py` and `test_supernet.py`."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from flair_nas import FlairNasError, Genotype, SearchedRNN, load_genotype, random_genotype
from flair_nas.nn.kernels import dispatch
from flair_nas.nn.kernels.native import build, run
from flair_nas.supernet import CellSupernet

GENOTYPES = {
    "darts-v2": load_genotype("darts-v2"),
    "enas-ptb": load_genotype("enas-ptb"),
    "ess-ptb": load_genotype("ess-ptb"),
    "gated carry": dataclasses.replace(load_genotype("ess-ptb"), carry="gated"),
    "two edges": random_genotype(3, edges_per_node=2),
    "elementwise": dataclasses.replace(random_genotype(3, edges_per_node=2), recurrence="elementwise"),
}
LENGTHS = (9, 5, 5, 2, 1)


@pytest.fixture(autouse=True)
def native_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if build.built().library is None:
        pytest.skip("no native kernels here")
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def layer(name: str, hidden_size: int = 37, input_size: int = 20, **options: Any) -> SearchedRNN:
    torch.manual_seed(1)
    return SearchedRNN(input_size, hidden_size, GENOTYPES[name], init_range=0.2, **options)


def sequences(width: int = 20, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(length, width, generator=generator, dtype=torch.float64).to(dtype) for length in LENGTHS]


def results(rnn: SearchedRNN, inputs: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of inputs and parameters, for a loss that weights outputs differently."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    rnn.zero_grad()
    torch.manual_seed(3)  # of the dropout masks
    output = rnn(pack_sequence(leaves, enforce_sorted=False))[0].data
    (output * torch.arange(output.numel()).view_as(output).sin().to(output.dtype)).sum().backward()
    return [output.detach(), *(leaf.grad for leaf in leaves), *(p.grad.clone() for p in rnn.parameters())]


def largest_error(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, relative to the largest value of each tensor."""
    return max(
        ((a.double() - e.double()).abs().max() / e.double().abs().max().clamp(min=1e-30)).item()
        for a, e in zip(actual, expected, strict=True)
        if e.abs().max() > 0 or a.abs().max() > 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("name", GENOTYPES)
def test_float64_equals_the_plain_path_on_any_number_of_threads(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    rnn = layer(name, bidirectional=True, num_layers=2, input_dropout=0.3, recurrent_dropout=0.2).double()
    actual = results(rnn, sequences(dtype=torch.float64))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    assert largest_error(actual, results(rnn, sequences(dtype=torch.float64))) < 1e-12


@pytest.mark.parametrize("name", GENOTYPES)
def test_float32_is_as_near_to_float64_as_the_plain_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = layer(name)
    exact = results(copy.deepcopy(rnn).double(), sequences(dtype=torch.float64))
    error = largest_error(results(rnn, sequences()), exact)
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    plain = largest_error(results(rnn, sequences()), exact)
    assert error < 2e-5
    assert error < 4 * plain


@pytest.mark.parametrize("name", GENOTYPES)
def test_bfloat16_products_are_as_near_to_float64_as_the_plain_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(build.library(), "flair_nas_forward_bfloat16"):
        pytest.skip("this processor multiplies no bfloat16")
    rnn = layer(name)
    exact = results(copy.deepcopy(rnn).double(), sequences(dtype=torch.float64))
    errors = {}
    for kernels in ("native", "plain"):
        monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
        with torch.autocast("cpu", torch.bfloat16):
            errors[kernels] = largest_error(results(rnn, sequences()), exact)
    assert 1e-4 < errors["native"] < 1.5 * errors["plain"]  # no less, else nothing was multiplied in bfloat16


@pytest.mark.parametrize("value", [-1e30, -200.0, -88.0, -30.0, -1e-3, -1e-20, 0.0, 1e-38, 1e-4, 0.6, 20.0, 89.0, 1e30])
@pytest.mark.parametrize("op", ["tanh", "sigmoid", "relu", "identity"])
def test_operations_hold_for_extreme_arguments(op: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = SearchedRNN(1, 1, Genotype.parse(f"{op}0"))
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.fill_(1.0)
    data = torch.full((3, 2, 1), value)
    actual = rnn(data)[0]
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    torch.testing.assert_close(actual, rnn(data)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", GENOTYPES)
def test_not_a_number_and_infinity_are_not_hidden(name: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rnn, data = layer(name), torch.randn(4, 3, 20)
    data[1, 2, 5] = bad
    actual = rnn(data)[0]
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    torch.testing.assert_close(actual, rnn(data)[0], rtol=1e-4, atol=1e-5, equal_nan=True)
    assert actual[:, :2].isfinite().all() and (actual[1:, 2].isnan().any() or bad == bad)


def test_weights_changed_before_the_backward_pass_are_an_error() -> None:
    rnn, data = layer("darts-v2"), torch.randn(6, 3, 20)
    loss = rnn(data)[0].sum()
    with torch.no_grad():
        rnn.cells[0].weight_nodes.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.slow
def test_passes_that_overlap_share_no_memory() -> None:
    # large enough for memory to be reused
    rnns = [SearchedRNN(128, 128, GENOTYPES["darts-v2"]) for _ in range(2)]
    data = [torch.randn(40, 64, 128, generator=torch.Generator().manual_seed(n)) for n in range(2)]

    def gradients(order: list[int]) -> list[Tensor]:
        for rnn in rnns:
            rnn.zero_grad()
        losses = [rnn(one)[0].square().sum() for rnn, one in zip(rnns, data)]
        for number in order:
            losses[number].backward()
        return [p.grad.clone() for rnn in rnns for p in rnn.parameters()]

    expected = []
    for rnn, one in zip(rnns, data):
        rnn.zero_grad()
        rnn(one)[0].square().sum().backward()
        expected += [p.grad.clone() for p in rnn.parameters()]
    for order in ([0, 1], [1, 0], [0, 1]):
        assert all(torch.equal(a, e) for a, e in zip(gradients(order), expected))
    # older versions of PyTorch do not tell if a graph is kept; then no memory is reused
    assert bool(run._MEMORY.free) == hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph")
    with torch.no_grad():
        rnns[0](data[0])
    assert not run._MEMORY.free  # a pass without gradients lets go of it


def test_python_threads_may_run_at_once() -> None:
    torch.set_num_threads(2)
    rnn, inputs = layer("ess-ptb"), sequences()
    expected = results(copy.deepcopy(rnn), inputs)
    found: dict[int, Tensor] = {}

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                found[number] = rnn(pack_sequence(inputs, enforce_sorted=False))[0].data

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(torch.equal(output, expected[0]) for output in found.values()) and len(found) == 3


@pytest.mark.slow
@pytest.mark.parametrize("net", ["cell", "supernet"])
def test_what_else_keeps_the_machine_busy_changes_no_bit(net: str) -> None:
    """On a busy machine a team may run in one thread, but sums over threads always have the same threads."""
    torch.set_num_threads(2)
    made = layer("ess-ptb", 64) if net == "cell" else CellSupernet(20, 64, 4)
    data = torch.randn(9, 5, 20, generator=torch.Generator().manual_seed(2))

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(made(data)[0].sin().sum(), list(made.parameters())))

    expected = gradients()
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert all(torch.equal(a, e) for a, e in zip(gradients(), expected, strict=True))
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_what_native_kernels_cannot_run_runs_on_columns_or_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_form = SearchedRNN(20, 37, dataclasses.replace(GENOTYPES["darts-v2"], highway=False))
    half = SearchedRNN(20, 37, GENOTYPES["darts-v2"], dtype=torch.bfloat16)
    for rnn, problem in ((plain_form, "highway=False"), (half, "weights in torch.bfloat16")):
        data, cell = torch.randn(4, 3, 20, dtype=rnn.cells[0].weight_hidden.dtype), rnn.cells[0]
        monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
        with pytest.raises(FlairNasError, match=f"FLAIR_NAS_KERNELS=native: .*{problem}"):
            rnn(data)
        monkeypatch.setenv("FLAIR_NAS_KERNELS", "auto")
        assert dispatch.engine_for(rnn.genotype.highway, cell.weight_hidden, data.dtype) == "columns"
        assert rnn(data)[0].shape == (4, 3, 37) and rnn(data)[0].dtype == data.dtype


@pytest.mark.slow
@pytest.mark.parametrize("hidden_size", [36, 37, 48])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_what_lies_behind_the_hidden_size_does_not_grow(
    hidden_size: int, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if precision == torch.bfloat16 and not hasattr(build.library(), "flair_nas_forward_bfloat16"):
        pytest.skip("native kernels run no bfloat16 on this processor")
    net = CellSupernet(7, hidden_size, 4).eval()  # running statistics of 0 and 1 times 1 / sqrt(epsilon) at every node
    results = {}
    for kernels in ("native", "plain"):
        monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            output = net(torch.ones(12, 3, 7))[0]
        results[kernels] = [output, *torch.autograd.grad(output.sum(), list(net.parameters()))]
    for actual, expected in zip(results["native"], results["plain"]):
        assert expected.isfinite().all() and actual.isfinite().all()
        if precision == torch.float32:
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("hidden_size", [37, 48])
def test_the_output_is_the_callers_own(hidden_size: int) -> None:
    rnn, data = layer("darts-v2", hidden_size), torch.randn(6, 3, 20)
    expected = torch.autograd.grad((rnn(data)[0] * 2).sum(), list(rnn.parameters()))
    output = rnn(data)[0]
    assert output.is_contiguous()
    output.mul_(2)
    assert all(torch.equal(a, e) for a, e in zip(torch.autograd.grad(output.sum(), list(rnn.parameters())), expected))


def test_saved_tensors_may_pass_through_hooks() -> None:
    rnn, data = layer("ess-ptb"), torch.randn(6, 3, 20)
    expected = torch.autograd.grad(rnn(data)[0].sum(), list(rnn.parameters()))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
        loss = rnn(data)[0].sum()
    assert all(torch.equal(a, e) for a, e in zip(torch.autograd.grad(loss, list(rnn.parameters())), expected))


def test_a_trace_holds_operators_that_can_be_run_again() -> None:
    import torch._dynamo  # with which it is another way

    rnn, data = layer("darts-v2"), torch.randn(4, 3, 20)
    with torch.no_grad():
        traced = torch.jit.trace(rnn, (data,), check_trace=False)
        other = torch.randn(4, 3, 20)
        torch.testing.assert_close(traced(other)[0], rnn(other)[0], rtol=1e-5, atol=1e-6)


def test_evaluation_leaves_running_statistics_alone() -> None:
    with torch.inference_mode():
        net = CellSupernet(7, 37, 3).eval()
    with torch.no_grad():
        assert net(torch.randn(3, 4, 7))[0].isfinite().all()


def test_a_gate_without_inner_edges_has_no_gradient_for_them() -> None:
    gates = Genotype.parse("tanh0/state=sigmoid/input=sigmoid")
    rnn = SearchedRNN(20, 37, gates)
    rnn(torch.randn(4, 3, 20))[0].sum().backward()
    assert rnn.cells[0].input_gate.weight_nodes.grad is None
    assert rnn.cells[0].input_gate.weight_entry.grad is not None


def test_a_library_with_other_operations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run._check_names.cache_clear()
    monkeypatch.setattr(run, "OPERATIONS", (*run.OPERATIONS, "silu"))
    with pytest.raises(FlairNasError, match="know drop, tanh, .*operations.h must have the same"):
        layer("darts-v2")(torch.randn(4, 3, 20))
