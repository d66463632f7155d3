"""Triton's kernels: run by its interpreter, in a process of its own, against the plain equations; compiled, not run."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flair_nas import SearchedRNN, load_genotype, random_genotype
from flair_nas.kernels import elementwise, levels, padding, triton_elementwise, triton_levels
from flair_nas.kernels.engine import Recurrence
from flair_nas.operations import OPERATIONS
from flair_nas.recurrence import ENGINES
from flair_nas.supernet.cell import CellSupernet

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # what Triton itself asks when it is imported
SIZES = [(1, 1, 1), (1, 3, 2), (5, 1, 8), (5, 70, 3), (33, 3, 5), (33, 70, 1)]  # H, B, n: from 1 element to 10 blocks
SPECIAL = (0.0, -0.0, 1e-9, -1e-9, 40.0, -40.0, 1e4, -1e4)
sizes = pytest.mark.parametrize(("height", "batch", "count"), SIZES)
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def test_in_the_interpreter() -> None:
    """All of the class below; Triton is interpreted for a whole process or not at all."""
    pytest.importorskip("triton", minversion="3.3")  # interpreters before know no NumPy 2
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::TestInterpreted"]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_triton_the_module_is_there_and_nothing_is_imported() -> None:
    code = "import sys; sys.modules['triton'] = None; import flair_nas.kernels.triton_elementwise"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_operation() -> None:
    with pytest.raises(ValueError, match="op must be one of drop, tanh, .*, got 'gelu'"):
        triton_elementwise.highway(torch.zeros(2, 1), torch.zeros(1, 1), "gelu")


@pytest.mark.skipif(INTERPRETED, reason="an interpreted kernel is never compiled")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_kernels_compile(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To machine code for a GPU that need not be there: the compiler rejects what the interpreter lets pass."""
    triton = pytest.importorskip("triton", minversion="3.3")  # before, sources are described in another way
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, import-untyped, unused-ignore]

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    integers = ("count", "size", "half", "apart", "number", "stride", "height", "batch")
    tables = ("of_levels", "of_pairs", "into", "first")

    def check(kernel: Callable[..., None], **constants: Any) -> None:
        constants = {"WIDE": triton.language.float32, "BLOCK": 256} | constants
        function = triton_elementwise._compiled(kernel)
        low = {name: f"*{dtype}" for name in ("pre", "of_pre", "entering", "of_entering")}
        low |= {name: "i32" for name in integers} | {name: "*i64" for name in tables}
        signature = {name: "constexpr" if name in constants else low.get(name, "*fp32") for name in function.arg_names}
        source = triton.compiler.ASTSource(function, signature, constexprs=constants)
        assembly = triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]
        assert ".f64" not in assembly  # a number of Python's that made everything wide

    for op in range(len(OPERATIONS)):
        check(triton_elementwise._gate, OP=op)
        check(triton_elementwise._gate_back, OP=op)
    ops = {"OPS": len(OPERATIONS)}
    for absent in ({}, {"state": None}):
        check(triton_elementwise._mix, **ops, HIGHWAY=not absent, **absent)
    for absent in ({}, {"state": None, "of_state": None}):
        check(triton_elementwise._mix_back, **ops, HIGHWAY=not absent, WANTED=True, **absent)
        check(triton_elementwise._mix_back, **ops, HIGHWAY=not absent, WANTED=False, **absent, parts=None)
    check(
        triton_elementwise._mix_back, **ops, HIGHWAY=True, WANTED=True, count=1, size=1, half=1
    )  # Triton makes constants of 1s
    none = {"deviations": None, "ROWS": 0, "OF_BATCH": False}
    by_running = {"ROWS": 256, "BLOCK": 8, "OF_BATCH": False}
    by_batch = {"ROWS": 256, "BLOCK": 8, "OF_BATCH": True}
    of_running = ({}, {"mean": None, "variance": None})
    for blocks, means in ((none, of_running[1:]), (by_running, of_running[:1]), (by_batch, of_running)):
        numbers = {"MOMENTUM": 0.1, "EPSILON": 1e-5}
        for absent in ({}, {"mask": None}):
            for mean in means:
                check(triton_levels.level, **ops, **numbers, **blocks, **absent, **mean)
            check(triton_levels.level_back, **ops, **blocks, **absent)
            check(triton_levels.level_back, **ops, **blocks, **absent, parts=None)
    for gated in (True, False):
        gate = {"factor": None}
        check(triton_levels.enter, GATED=gated)
        check(triton_levels.enter, GATED=gated, **gate, mask=None, alive=None)
        check(triton_levels.enter_back, GATED=gated)
        check(triton_levels.enter_back, GATED=gated, **gate, mask=None, alive=None, of_factor=None, of_output=None)


class TestInterpreted:
    __test__ = INTERPRETED

    @dtypes
    @sizes
    def test_mixture(self, height: int, batch: int, count: int, dtype: torch.dtype) -> None:
        tensors = random(dtype, (count, height, batch), (count, 5))
        check_agrees(triton_elementwise.mixture, plain_edges, tensors)

    @dtypes
    @sizes
    def test_highway_mixture(self, height: int, batch: int, count: int, dtype: torch.dtype) -> None:
        tensors = random(dtype, (2 * count * height, batch), (height, batch), (count, 5))
        check_agrees(triton_elementwise.highway_mixture, plain_mixture, tensors)

    @dtypes
    @pytest.mark.parametrize("op", OPERATIONS)
    @pytest.mark.parametrize(("height", "batch"), [(1, 1), (5, 3), (33, 70)])
    def test_highway(self, height: int, batch: int, op: str, dtype: torch.dtype) -> None:
        tensors = random(dtype, (2 * height, batch), (height, batch))
        check_agrees(partial(triton_elementwise.highway, op=op), partial(plain_highway, op=op), tensors)

    def test_highway_of_each_of_several_heads(self) -> None:
        """Their c and z lie apart, as `SearchedCell` multiplies them: all c first."""
        ops = ("tanh", "relu", "sigmoid")

        def run(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def heads(pre: Tensor, state: Tensor) -> Tensor:
                parts = pre.view(2, len(ops), *state.shape).unbind(1)
                return torch.stack([function(part, state, op) for part, op in zip(parts, ops)])

            return heads

        tensors = random(torch.float64, (2 * len(ops) * 5, 3), (5, 3))
        check_agrees(run(triton_elementwise.highway), run(plain_highway), tensors)

    @pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize("name", ["mixture", "highway_mixture", "highway"])
    def test_pre_activations_of_lower_precision(self, name: str, low: torch.dtype) -> None:
        """A state keeps its float32, and only what is stored in the lower precision is rounded to it."""
        height, batch, count = 5, 70, 3
        pre, state, shares = random(torch.float32, (2 * count * height, batch), (height, batch), (count, 5))
        pre = pre.to(low)
        if name == "mixture":
            check_agrees(triton_elementwise.mixture, plain_edges, [pre.view(2 * count, height, batch)[:count], shares])
        elif name == "highway_mixture":
            check_agrees(triton_elementwise.highway_mixture, plain_mixture, [pre, state, shares])
        else:
            run, plain = partial(triton_elementwise.highway, op="tanh"), partial(plain_highway, op="tanh")
            check_agrees(run, plain, [pre[: 2 * height], state])

    def test_special_values(self) -> None:
        pre = torch.tensor(SPECIAL, dtype=torch.float64).repeat(2, 1)  # H = 1, c and z alike
        state, shares = random(torch.float64, (1, len(SPECIAL)), (1, 5))
        check_agrees(triton_elementwise.highway_mixture, plain_mixture, [pre, state, shares])
        check_agrees(triton_elementwise.mixture, plain_edges, [pre[:1, None], shares])
        for op in OPERATIONS:
            check_agrees(partial(triton_elementwise.highway, op=op), partial(plain_highway, op=op), [pre, state])

    @pytest.mark.parametrize("op", ["tanh", "relu", "sigmoid", "identity"])
    def test_what_is_not_a_number_stays_so(self, op: str) -> None:
        pre = torch.tensor([[0.0], [math.nan]])
        assert triton_elementwise.highway(pre, torch.zeros(1, 1), op).isnan().all()
        assert triton_elementwise.highway_mixture(pre, torch.zeros(1, 1), torch.ones(1, 5)).isnan().all()

    def test_tensors_that_are_not_contiguous(self) -> None:
        """As the states of a batch whose shortest sequences have ended."""
        pre, state, shares = random(torch.float64, (2 * 2 * 5, 7), (5, 9), (5, 2))

        def of_a_part(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda pre, state, shares: function(pre, state[:, :7], shares.t())

        def turned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda *tensors: function(*(tensor.transpose(-1, -2) for tensor in tensors))

        check_agrees(of_a_part(triton_elementwise.highway_mixture), of_a_part(plain_mixture), [pre, state, shares])
        check_agrees(turned(triton_elementwise.mixture), turned(plain_edges), [pre.view(2, 10, 7), shares])
        run, plain = partial(triton_elementwise.highway, op="tanh"), partial(plain_highway, op="tanh")
        check_agrees(turned(run), turned(plain), random(torch.float64, (3, 10), (3, 5)))

    def test_a_gradient_of_shares_that_is_not_wanted_is_not_made(self) -> None:
        pre, state, shares = random(torch.float64, (2 * 3 * 5, 70), (5, 70), (3, 5))
        run, plain = partial(triton_elementwise.highway_mixture, shares=shares), partial(plain_mixture, shares=shares)
        check_agrees(run, plain, [pre, state])
        run, plain = partial(triton_elementwise.mixture, shares=shares), partial(plain_edges, shares=shares)
        check_agrees(run, plain, [pre.view(6, 5, 70)[:3]])

    @pytest.mark.parametrize("kind", ["supernet with gates", "darts-v2", "ess-ptb", "two edges"])
    def test_whole_recurrences_equal_the_plain_path(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(0)
        if kind == "supernet with gates":
            net: nn.Module = CellSupernet(4, 5, nodes=2, history=2).double()
        else:
            genotype = random_genotype(1, edges_per_node=2) if kind == "two edges" else load_genotype(kind)
            net = SearchedRNN(4, 5, genotype, init_range=0.3).double()
        xs = torch.randn(3, 4, 4, dtype=torch.float64)
        found = {}
        for kernels in ("triton", "plain"):
            monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
            output = net(xs)[0]
            found[kernels] = [output, *torch.autograd.grad(output.square().sum(), list(net.parameters()))]
        torch.testing.assert_close(found["triton"], found["plain"], rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("carry", ["gated", "ungated"])
    @pytest.mark.parametrize("cell", ["tanh0", "darts-v2", "tanh0+relu0-sigmoid1+identity0-relu1+identity1", "gated"])
    def test_levels_equal_the_plain_path(self, cell: str, carry: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ragged batches, too, which are padded, and with dropout."""
        genotype = load_genotype("tanh0-relu1/state=sigmoid-tanh+sigmoid1" if cell == "gated" else cell)
        torch.manual_seed(0)
        layer = SearchedRNN(4, 5, replace(genotype, carry=carry), recurrent_dropout=0.3, bidirectional=True).double()
        ragged = [torch.randn(length, 4, dtype=torch.float64) for length in (5, 3, 1)]
        for given in (torch.randn(4, 8, 4, dtype=torch.float64), nn.utils.rnn.pack_sequence(ragged)):
            found = {}
            for kernels in ("columns", "plain"):
                monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
                monkeypatch.setitem(ENGINES, "columns", (run_levels, elementwise))
                torch.manual_seed(1)
                source = (given if isinstance(given, Tensor) else given.data).requires_grad_()
                output = layer(given)[0]
                output = output if isinstance(output, Tensor) else output.data
                direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
                wanted = [source, *layer.parameters()]
                found[kernels] = [output, *torch.autograd.grad((output * direction).sum(), wanted)]
            torch.testing.assert_close(found["columns"], found["plain"], rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
    @pytest.mark.parametrize("kind", ["training", "evaluation", "batch statistics", "not normalised", "state gate"])
    def test_levels_of_supernets_equal_the_plain_path(
        self, kind: str, relaxation: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Gradients of the architecture weights and running statistics, too; 130 rows are beyond one power of two."""
        torch.manual_seed(0)
        nets = [supernet(kind, relaxation) for _ in range(2)]
        nets[1].load_state_dict(nets[0].state_dict())
        given = torch.randn(2, 130, 4, dtype=torch.float64)
        found = []
        monkeypatch.setitem(ENGINES, "columns", (run_levels, elementwise))
        for kernels, net in zip(("columns", "plain"), nets):
            monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
            torch.manual_seed(1)  # of dropout
            source = given.clone().requires_grad_()
            with net.batch_statistics() if kind == "batch statistics" else contextlib.nullcontext():
                output = net(source)[0]
            direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
            learned = [source, *net.parameters()]
            found.append([output, *torch.autograd.grad((output * direction).sum(), learned), *net.buffers()])
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)

    def test_levels_with_products_in_bfloat16_are_as_near_as_the_equations(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch.manual_seed(0)
        layer, given = SearchedRNN(8, 8, "i-darts-ptb"), torch.randn(8, 8, 8)
        monkeypatch.setitem(ENGINES, "columns", (run_levels, elementwise))
        found = {}
        for kernels, low in (("columns", True), ("plain", True), ("plain", False)):
            monkeypatch.setenv("FLAIR_NAS_KERNELS", kernels)
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                output = layer(given)[0]
            found[kernels, low] = [output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))]
        for own, plain, exact in zip(found["columns", True], found["plain", True], found["plain", False]):
            # the interpreter cuts bits off where a GPU rounds, which doubles what rounding adds
            assert 0 < (own - exact).norm() < 3 * (plain - exact).norm()


def supernet(kind: str, relaxation: str) -> CellSupernet:
    """With architecture weights and running statistics that are not those it began with."""
    options: dict[str, Any] = {"batch_norm": kind != "not normalised", "recurrent_dropout": 0.3}
    if kind == "state gate":
        options["fixed_gates"] = load_genotype("tanh0-relu1/state=sigmoid-tanh+sigmoid1")
    net = CellSupernet(4, 20, 3, relaxation, **options).double()
    nn.init.normal_(net.arch)
    if net.norm is not None:
        net.norm.running_mean.uniform_(-1, 1)
        net.norm.running_var.uniform_(0.5, 2)
    return net.train(kind not in ("evaluation", "batch statistics"))


def run_levels(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """As `graphs.run` without a graph."""
    dense, given, rows = padding.padded(recurrence, sources)
    assert levels.can_run(dense)
    output = levels.run(dense, given)
    return output if rows is None else output.index_select(0, rows)


def random(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def plain_mixture(pre: Tensor, state: Tensor, shares: Tensor) -> Tensor:
    """As `highway_mixture`, by the equation: the sum over k of share_k (s + σ(c) (op_k(z) - s))."""
    gate, value = pre.view(2, -1, *state.shape)  # [n, H, B] each
    total = torch.zeros_like(value)
    for share, (name, operation) in zip(shares.t(), OPERATIONS.items()):
        if name != "drop":
            total = total + share[:, None, None] * (state + torch.sigmoid(gate) * (operation(value) - state))
    return total


def plain_edges(pre: Tensor, shares: Tensor) -> Tensor:
    """As `mixture`, by the equation."""
    return sum((share[:, None, None] * op(pre) for share, op in zip(shares.t(), OPERATIONS.values())), 0 * pre)


def plain_highway(pre: Tensor, state: Tensor, op: str) -> Tensor:
    """As `highway`, by the equation."""
    gate, value = pre.reshape(2, *state.shape)
    return state + torch.sigmoid(gate) * (OPERATIONS[op](value) - state)


def check_agrees(run: Callable[..., Tensor], plain: Callable[..., Tensor], tensors: Sequence[Tensor]) -> None:
    """The result and the gradient of each tensor against the equation in float64, to 1e-12 if that is their dtype.

    In float32 to 1e-6, a gradient that sums over m elements to sqrt(m) times that; lower dtypes are rounded to once.
    """
    ours = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    out, wanted = run(*ours), plain(*exact)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(out.shape[::-1], generator=generator).to(out.dtype)
    upstream = upstream.permute(*reversed(range(out.ndim)))  # not contiguous
    check_close(out, wanted, 1)
    found = torch.autograd.grad(out, ours, upstream)
    for tensor, actual, right in zip(tensors, found, torch.autograd.grad(wanted, exact, upstream.double())):
        assert actual.dtype == tensor.dtype
        check_close(actual, right, max(1, out.numel() // tensor.numel()))


def check_close(actual: Tensor, expected: Tensor, terms: int) -> None:
    tolerance = 1e-12 if actual.dtype == torch.float64 else 1e-6
    relative = max(tolerance, torch.finfo(actual.dtype).eps)
    torch.testing.assert_close(actual.double(), expected, rtol=relative, atol=tolerance * math.sqrt(terms))
