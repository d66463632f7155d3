"""The matrix products of a recurrent layer and nothing else: a floor under the time of whatever computes that layer.

A `Plan` says which products a layer needs and which of them can share a call: products over all time steps at once
where the data flow allows that, then those of each step, stage by stage. `build` turns it into library calls on random
matrices, `run` makes them. Each call is the fastest found in a short calibration at its shape: PyTorch's mm (MKL or
oneDNN; every order and layout of the matrices), mv, bmm where several products of one shape are ready together, and
oneDNN's linear, plain or with the weights packed beforehand. Packing or transposing weights, elementwise work and
reading activations from memory cost nothing here, as each activation stands where the last one stood.

Products are [F, E] x [E, n], of a weight and n vectors.
"""

import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Gate, Genotype
from flair_nas.runs.device import check_precision

Call = Callable[[], Any]


class Product(NamedTuple):
    """One product of a step: a weight [F, E] with the vectors of `copies` states, [E, copies * B]."""

    name: Hashable
    rows: int
    inner: int
    copies: int = 1

    @property
    def transposed(self) -> "Product":
        """The product of the gradients with the transposed weight."""
        return Product((self.name, "transposed"), self.inner, self.rows, self.copies)


@dataclass
class Plan:
    """The products of a layer. The backward pass goes through the stages in reverse."""

    whole: list[Product] = field(default_factory=list)  # over all steps at once
    stages: list[list[Product]] = field(default_factory=list)  # of one step; those of a stage are ready at one time
    weights: list[Product] = field(default_factory=list)  # by weight, whose gradient it gets; if empty, all of these


# --- plans ---


def plan_of(genotype: Genotype, input_size: int, hidden_size: int) -> Plan:
    """The products of one layer of `SearchedRNN` in one direction; those of dead nodes are not there."""
    width = (2 if genotype.highway else 1) * hidden_size
    cell = {i: {edge.tail for edge in genotype.nodes[i - 1]} for i in genotype.live_nodes}
    plan = Plan()
    if genotype.state_gate is not None:
        plan.whole.append(Product("state entry", genotype.state_gate.history * hidden_size, input_size))
        plan.whole += itertools.chain(*_stages("state", _tails(genotype.state_gate), hidden_size, hidden_size))
    if genotype.input_gate is not None:
        plan.stages.append([Product("entry", genotype.input_gate.history * input_size, hidden_size)])
        plan.stages += _stages("input gate", _tails(genotype.input_gate), input_size, input_size)
        plan.stages.append([Product("input and hidden", width, input_size + hidden_size)])  # [x̂ | h] in one product
    else:
        plan.whole.append(Product("input", width, input_size))
        if genotype.recurrence == "elementwise":  # the nodes of all steps at once
            plan.whole += itertools.chain(*_stages("node", cell, width, hidden_size))
            return plan
        plan.stages.append([Product("hidden", width, hidden_size)])
    plan.stages += _stages("node", cell, width, hidden_size)
    return plan


def _tails(gate: Gate) -> dict[int, set[int]]:
    return {i: {edge.tail for edge in node.edges} for i, node in enumerate(gate.nodes, start=1)}


def _stages(prefix: str, tails: Mapping[int, set[int]], width: int, size: int) -> list[list[Product]]:
    """One product for each node that others read, with the weights of all these, [width, size] each, side by side."""
    level = {0: 0}
    for node, read in tails.items():
        level[node] = 1 + max((level[tail] for tail in read), default=-1)
    stages: dict[int, list[Product]] = defaultdict(list)
    for tail in level:
        if heads := sum(tail in read for read in tails.values()):
            stages[level[tail]].append(Product((prefix, tail), heads * width, size))
    return [stages[number] for number in sorted(stages)]


def supernet_plans(input_size: int, hidden_size: int, nodes: int, history: int) -> list[Plan]:
    """The products of a supernet, in two orders: by the node that is read, and by the node that reads."""
    start = Plan()
    if history:
        gate = {i: set(range(1, i)) for i in range(1, history + 1)}
        start.whole.append(Product("state entry", history * hidden_size, input_size))
        start.whole += itertools.chain(*_stages("state", gate, hidden_size, hidden_size))
        start.stages.append([Product("entry", history * input_size, hidden_size)])
        start.stages += _stages("input gate", gate, input_size, input_size)
        start.stages.append([Product("input and hidden", 2 * hidden_size, input_size + hidden_size)])
    else:
        start.whole.append(Product("input", 2 * hidden_size, input_size))
        start.stages.append([Product("hidden", 2 * hidden_size, hidden_size)])
    by_tail = _stages("node", {i: set(range(i)) for i in range(1, nodes + 1)}, 2 * hidden_size, hidden_size)
    by_head = [[Product(("head", i), 2 * hidden_size, hidden_size, copies=i)] for i in range(1, nodes + 1)]
    weights = [*start.whole, *itertools.chain(*start.stages, *by_head)]  # a node's over all that it reads at once
    return [Plan(start.whole, start.stages + order, weights) for order in (by_tail, by_head)]


def multiply_adds(genotype: Genotype, input_size: int, hidden_size: int) -> int:
    """Multiply-adds of the products for one token, forward, from the equations alone."""
    width = (2 if genotype.highway else 1) * hidden_size
    pairs = sum(len({edge.tail for edge in genotype.nodes[i - 1]}) for i in genotype.live_nodes)
    states = pairs + (genotype.recurrence == "full")  # that are multiplied with a matrix
    total = width * (input_size + states * hidden_size)
    for gate, size in ((genotype.state_gate, hidden_size), (genotype.input_gate, input_size)):
        if gate is not None:
            inner = sum(len({edge.tail for edge in node.edges}) for node in gate.nodes)
            total += gate.history * input_size * hidden_size + inner * size * size
    return total


# --- calls ---


class Form(NamedTuple):
    """How a product is called; the left matrix is the weight, [F, E], the right one holds the vectors, [E, n]."""

    kind: str  # mm, mv, bmm, linear, packed
    left_by_columns: bool = False  # how the matrix lies in memory
    right_by_columns: bool = False
    swapped: bool = False  # the result is [n, F], right^T left^T


LAYOUTS = [*itertools.product((False, True), repeat=3)]
MATRIX_FORMS = [Form("mm", *layout) for layout in LAYOUTS]
VECTOR_FORMS = [Form("mv", by_columns) for by_columns in (False, True)]
BATCH_FORMS = [Form("bmm", *layout) for layout in LAYOUTS]
LINEAR_FORMS = [Form("linear", False, side, False) for side in (False, True)]
LINEAR_FORMS += [Form("linear", side, True, True) for side in (False, True)]
PACKED_FORMS = [Form("packed", False, True, True)]


class Matrices:
    """The matrices that calls work on: a weight has its own memory, all vectors and all results share theirs."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weights: dict[Hashable, Tensor] = {}
        self.shared: dict[str, Tensor] = {}

    def weight(self, name: Hashable, *shape: int, by_columns: bool, packed: bool = False) -> Tensor:
        """The weight of that name, with that layout."""
        key = (name, shape, by_columns, packed)
        if key not in self.weights:
            weight = _laid_out(torch.rand(torch.Size(shape).numel()).to(self.dtype), shape, by_columns)
            self.weights[key] = torch.ops.mkldnn._reorder_linear_weight(weight) if packed else weight
        return self.weights[key]

    def passing(self, role: str, *shape: int, by_columns: bool = False) -> Tensor:
        """A matrix in the memory that all of its role share."""
        size = torch.Size(shape).numel()
        if role not in self.shared or len(self.shared[role]) < size:
            self.shared[role] = torch.rand(size).to(self.dtype)
        return _laid_out(self.shared[role][:size], shape, by_columns)


def _laid_out(numbers: Tensor, shape: Sequence[int], by_columns: bool) -> Tensor:
    *count, rows, columns = shape
    return numbers.view(*count, columns, rows).mT if by_columns else numbers.view(*shape)


def make_call(form: Form, matrices: Matrices, name: Hashable, *sizes: int) -> Call:
    """A product of a form, of sizes F, E, n, in a bmm after the number of products; a weight has a name."""
    *count, rows, inner, columns = sizes
    if name is None:
        left = matrices.passing("left", *count, rows, inner, by_columns=form.left_by_columns)
    else:
        packed = form.kind == "packed"
        left = matrices.weight(name, *count, rows, inner, by_columns=form.left_by_columns, packed=packed)
    right = matrices.passing("right", *count, inner, columns, by_columns=form.right_by_columns)
    if form.kind == "packed":
        return partial(torch.ops.mkldnn._linear_pointwise, right.mT, left, None, "none", [], "")
    if form.kind == "mv":
        return partial(torch.mv, left, right[:, 0], out=matrices.passing("out", rows, 1)[:, 0])
    if form.swapped:
        left, right = right.mT, left.mT
    if form.kind == "linear":
        return partial(torch.ops.mkldnn._linear_pointwise, left, right.mT, None, "none", [], "")
    out = matrices.passing("out", *count, left.shape[-2], right.shape[-1])
    return partial(torch.bmm if count else torch.mm, left, right, out=out)


def multiply_adds_of(call: Call) -> int:
    """What a call does, from the shapes of its matrices."""
    left, right = call.args[:2]
    columns = right.shape[0] if "_linear" in str(call.func) else right.shape[-1] if right.dim() > 1 else 1
    return left.numel() * columns


def passes(plan: Plan, sizes: Sequence[int], training: bool) -> Iterator[tuple[list[Product], int]]:
    """What is multiplied in turn but for the weights' gradients: products that are ready together, how many vectors."""
    total = sum(sizes)
    yield from (([product], total) for product in plan.whole)
    yield from ((stage, size) for size in sizes for stage in plan.stages)
    if training:
        back = [[product.transposed for product in stage] for stage in reversed(plan.stages)]
        yield from ((stage, size) for size in reversed(sizes) for stage in back)
        yield from (([product.transposed], total) for product in plan.whole)


def weight_products(plan: Plan) -> list[Product]:
    """For each weight, the product whose gradient it gets."""
    return plan.weights or [*plan.whole, *itertools.chain(*plan.stages)]


def build(plan: Plan, sizes: Sequence[int], training: bool, dtype: torch.dtype) -> list[Call]:
    """The calls for a batch, of which `sizes` sequences take part in each step."""
    matrices, total = Matrices(dtype), sum(sizes)
    calls: list[Call] = []
    for products, size in passes(plan, sizes, training):
        calls += _together(products, size, matrices)
    for product in weight_products(plan) if training else ():
        rows, vectors, columns = product.rows, product.copies * total, product.inner  # [F, S] x [S, E]
        form = _fastest(False, 1, rows, min(vectors, LONGEST), columns, dtype, torch.get_num_threads())
        calls.append(make_call(form, matrices, None, rows, vectors, columns))
    return calls


def fastest_calls(plans: Sequence[Plan], sizes: Sequence[int], training: bool, dtype: torch.dtype) -> list[Call]:
    """The calls of the plan that takes the shortest."""
    if len(plans) == 1:
        return build(plans[0], sizes, training, dtype)
    built = [build(plan, sizes, training, dtype) for plan in plans]
    return min(built, key=lambda calls: min(seconds(calls) for _ in range(2)))


def run(calls: Iterable[Call]) -> None:
    """Makes the calls."""
    with torch.inference_mode():
        for call in calls:
            call()


def seconds(calls: Sequence[Call]) -> float:
    """What they take."""
    start = time.perf_counter()
    run(calls)
    return time.perf_counter() - start


def _together(products: Sequence[Product], size: int, matrices: Matrices) -> list[Call]:
    """The calls for products that are ready at the same time."""
    calls: list[Call] = []
    groups: dict[tuple[int, ...], list[Hashable]] = defaultdict(list)
    for product in products:
        groups[product.rows, product.inner, product.copies * size].append(product.name)
    for shape, names in groups.items():
        rows, inner, columns = shape
        tried = columns if columns <= 4 else min(-(-columns // 4) * 4, LONGEST)  # fewer shapes of a ragged batch
        form = _fastest(True, len(names), rows, inner, tried, matrices.dtype, torch.get_num_threads())
        if form.kind == "bmm":
            calls.append(make_call(form, matrices, tuple(names), len(names), *shape))
        else:
            calls += [make_call(form, matrices, name, *shape) for name in names]
    return calls


# --- calibration ---

WEIGHTS = 4 * 2**20  # bytes to go through before the same weight is used again, as a cell does
LONGEST = 512  # vectors, of a product over all steps; more do not change which form is the fastest
PATIENCE = 0.04  # seconds for one shape, when all its forms have run once or twice


def runnable(precisions: Sequence[str]) -> list[str]:
    """Those that this processor can run; standard error is told of the others."""
    found = []
    for precision in precisions:
        try:
            check_precision(precision, torch.device("cpu"))
        except FlairNasError as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            found.append(precision)
    return found


@cache
def has_linear(dtype: torch.dtype) -> bool:
    """Whether oneDNN is here and multiplies matrices of that dtype; on x86 bfloat16 takes AVX-512."""
    square = torch.zeros(2, 2, dtype=dtype)
    try:
        torch.ops.mkldnn._linear_pointwise(square, square, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return True


@cache
def _fastest(weight: bool, count: int, rows: int, inner: int, columns: int, dtype: torch.dtype, threads: int) -> Form:
    """The fastest form of `count` products on so many threads; `weight`: the left matrix is one, and may be packed."""
    matrices, shape = Matrices(dtype), (rows, inner, columns)
    different = max(1, min(8, WEIGHTS // (count * rows * inner * dtype.itemsize))) if weight else 1
    names = [*itertools.product(range(different), range(count))] if weight else [None]
    forms = [*MATRIX_FORMS, *(VECTOR_FORMS if columns == 1 else [])]
    if has_linear(dtype):
        forms += [*LINEAR_FORMS, *(PACKED_FORMS if weight else [])]
    candidates = {form: [make_call(form, matrices, name, *shape) for name in names] for form in forms}
    if count > 1:
        for form in BATCH_FORMS:
            candidates[form] = [make_call(form, matrices, i, count, *shape) for i in range(different)]
    best = {form: seconds(calls) for form, calls in candidates.items()}
    if min(best.values()) < PATIENCE / 8:  # so short that warming up counted
        best = {form: seconds(calls) for form, calls in candidates.items()}
    near = [form for form, found in best.items() if found < 1.4 * min(best.values())]
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        for form in near:
            best[form] = min(best[form], seconds(candidates[form]))
    return min(best, key=lambda form: best[form])
