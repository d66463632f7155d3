"""The engine `native`: one call forward, one backward, and one product for each weight's gradient."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from flair_nas.errors import FlairNasError
from flair_nas.genotype import GATE_FORMS, OPERATIONS
from flair_nas.nn.kernels.engine import Recurrence
from flair_nas.nn.kernels.native import build
from flair_nas.nn.kernels.plan import CellPlan, GatePlan, PairPlan
from flair_nas.nn.kernels.sequence_gradient import keeps_graph
from flair_nas.nn.kernels.tracing import first_order_only
from flair_nas.nn.matrix_product import multiply

_TYPES = {"std::int64_t": ctypes.c_int64, "double": ctypes.c_double}


@lru_cache(maxsize=8)
def _check_names(library: ctypes.CDLL) -> None:
    for function, names in (("flair_nas_operations", OPERATIONS), ("flair_nas_gate_forms", GATE_FORMS)):
        native_names = build.call_text(library, function).split()
        if native_names != list(names):
            raise FlairNasError(
                f"the native kernels know {', '.join(native_names)}, Python {', '.join(names)}: "
                "genotype/operations.py and nn/kernels/native/operations.h must have the same in one order"
            )


@lru_cache(maxsize=8)
def _problem_type(library: ctypes.CDLL) -> type[ctypes.Structure]:
    """Return the struct of the members that the library names; they are 0 or null by default."""
    members = [member.rsplit(" ", 1) for member in build.call_text(library, "flair_nas_members").split(";") if member]
    fields = [(name, ctypes.c_void_p if kind.endswith("*") else _TYPES[kind]) for kind, name in members]
    return type("Problem", (ctypes.Structure,), {"_fields_": fields})


def load_library() -> ctypes.CDLL:
    """Return the native kernels, which the caller knows to be there."""
    library = build.library()
    assert library is not None
    _check_names(library)
    return library


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Run a recurrence in the highway form; arguments and returns as `flair_nas.nn.kernels.engine.Engine`."""
    tensors = {name: tensor.contiguous() for name, tensor in sources.items()}
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors.values()):
        output: Tensor = _NativeRecurrence.apply(recurrence, tuple(tensors), *tensors.values())
        return output
    _MEMORY.give_back([])
    return _forward(recurrence, tensors, keep=False)[0]["output"][:, : recurrence.hidden_size].contiguous()


class _NativeRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recurrence: Recurrence, names: tuple[str, ...], *tensors: Tensor) -> Tensor:
        sources = dict(zip(names, tensors))
        kept, ctx.borrowed = _forward(recurrence, sources, keep=True)
        padded = {name for name in names if kept.get(name, sources[name]) is not sources[name]}
        ctx.saved = [name for name in names if name not in padded | {"projected", "past"}]
        ctx.recurrence, ctx.names, ctx.kept = recurrence, names, kept
        ctx.save_for_backward(*(sources[name] for name in ctx.saved))
        # a copy, because the caller may change it
        return kept["output"][:, : recurrence.hidden_size].clone(memory_format=torch.contiguous_format)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors = {**dict(zip(ctx.saved, ctx.saved_tensors)), **ctx.kept}
        needed = {name for name, needs_grad in zip(ctx.names, ctx.needs_input_grad[2:]) if needs_grad}
        again = keeps_graph()
        grads = _backward(ctx.recurrence, tensors, gradient, needed, again)
        if not again:
            _MEMORY.give_back(ctx.borrowed)
            del ctx.kept, ctx.borrowed
        return (None, None, *(grads.get(name) for name in ctx.names))


class _Sizes:
    """The sizes of a recurrence; Hp and Dp are H and D rounded up to whole vector registers."""

    def __init__(self, recurrence: Recurrence, dtype: torch.dtype) -> None:
        lanes = load_library().flair_nas_vector_bytes() // dtype.itemsize
        self.steps, self.batch, self.rows = len(recurrence.sizes), recurrence.sizes[0], sum(recurrence.sizes)
        self.states = len(recurrence.cell.scale)
        self.history = len(recurrence.gate.entries) if recurrence.gate else 0
        self.hidden = -(-recurrence.hidden_size // lanes) * lanes  # Hp
        self.input = -(-recurrence.input_size // lanes) * lanes  # Dp
        self.entries = (self.history - 1) * self.batch + self.rows  # states that entries of the input gate read


def _in_huge_pages(tensor: Tensor) -> Tensor:
    """Ask the system for huge pages for a tensor that is not filled yet, and return it."""
    size = tensor.numel() * tensor.element_size()
    load_library().flair_nas_advise(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_long(size))
    return tensor


class _Memory:
    """Memory that passes of about one size reuse for their gradients; a pass without gradients frees all of it.

    The system zeroes new memory, which takes a sixth of the time of a training step.
    """

    def __init__(self) -> None:
        self.free: list[Tensor] = []
        self.lock = threading.Lock()

    def take(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return memory for at least `count` numbers, and at most twice as many."""
        with self.lock:
            for place, tensor in enumerate(self.free):
                if tensor.dtype == dtype and count <= tensor.numel() <= 2 * count:
                    return self.free.pop(place)
        return _in_huge_pages(torch.empty(count, dtype=dtype, device="cpu"))

    def give_back(self, tensors: list[Tensor]) -> None:
        """Keep these tensors for the next pass, and at most as much memory of older ones."""
        limit = sum(tensor.numel() for tensor in tensors)
        with self.lock:
            older, self.free = self.free, list(tensors)
            for tensor in older:
                limit -= tensor.numel()
                if limit >= 0:
                    self.free.append(tensor)


_MEMORY = _Memory()


def _padded(tensor: Tensor, width: int) -> Tensor:
    """Return the tensor with its last dimension padded by zeros to `width`, contiguous."""
    missing = width - tensor.shape[-1]
    return (pad(tensor, (0, missing)) if missing else tensor).contiguous()


def _array(number: Any, values: Sequence[float | None]) -> ctypes.Array[Any]:
    return (number * len(values))(*values)  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _arrays(cell: CellPlan, gate: GatePlan | None, number: Any) -> dict[str, ctypes.Array[Any]]:
    """Return the arrays of the plans that members of `Problem` point to; `number` is the type of weights."""
    integers, numbers = partial(_array, ctypes.c_int64), partial(_array, number)
    arrays: dict[str, ctypes.Array[Any]] = {
        "level_start": integers(cell.level_start),
        "first_pair": integers(cell.pairs.first),
        "node_scale": numbers(cell.scale),
        "output_weight": numbers(cell.output),
    }
    if gate is not None:
        arrays |= {"gate_first": integers(gate.pairs.first), "entry_code": integers(gate.entries)}
    for prefix, pairs in (("", cell.pairs), ("gate_", gate.pairs if gate is not None else None)):
        if pairs is not None:
            arrays |= {prefix + "tail": integers(pairs.tails), prefix + "code": integers(pairs.codes)}
            if pairs.mixing is not None:
                arrays[prefix + "mixing"] = numbers([weight for row in pairs.mixing for weight in row])
    return arrays


def _call(name: str, recurrence: Recurrence, sizes: _Sizes, tensors: Mapping[str, Tensor], keep: bool) -> None:
    """Call ``forward`` or ``backward`` of the library with tensors by the names of `Problem`'s members."""
    cell, normalisation = recurrence.cell, recurrence.normalisation
    number = ctypes.c_float if tensors["weight_hidden"].dtype == torch.float32 else ctypes.c_double
    weights = tensors["weight_nodes"]
    stride = weights.stride(0) * weights.element_size()
    pointers = [0, *(weights.data_ptr() + (node - 1) * stride for node in cell.nodes)]
    arrays: dict[str, ctypes.Array[Any]] = {
        "sizes": _array(ctypes.c_int64, recurrence.sizes),
        "weight_nodes": _array(ctypes.c_void_p, pointers),
        **_arrays(cell, recurrence.gate, number),
    }
    members: dict[str, float] = {key: ctypes.addressof(array) for key, array in arrays.items()}
    members |= {key: tensor.data_ptr() for key, tensor in tensors.items() if key != "weight_nodes"}
    members |= {
        "threads": torch.get_num_threads(),
        "steps": sizes.steps,
        "rows": sizes.rows,
        "batch": sizes.batch,
        "hidden_size": recurrence.hidden_size,
        "input_size": recurrence.input_size,
        "keep": keep,
        "states": sizes.states,
        "pairs": len(cell.pairs.tails),
        "levels": len(cell.level_start) - 1,
        "history": sizes.history,
    }
    if normalisation is not None:
        members |= {"norm": 1 if normalisation.use_batch else 2}
        members |= {"momentum": normalisation.momentum, "epsilon": normalisation.epsilon}
    if recurrence.gate is not None:
        members |= {"form": GATE_FORMS.index(recurrence.gate.form), "gate_pairs": len(recurrence.gate.pairs.tails)}
    function = getattr(load_library(), f"flair_nas_{name}_{str(recurrence.product).removeprefix('torch.')}")
    with torch.profiler.record_function("flair_nas::recurrence" + ("_backward" if name == "backward" else "")):
        error = function(ctypes.byref(_problem_type(load_library())(**members)))
    if error:
        raise MemoryError(
            f"a recurrence of {sizes.rows} tokens and hidden size {recurrence.hidden_size} needs more memory"
        )


class _Allocator:
    """Allocates the tensors of a forward pass, the large ones from `_MEMORY` if they are kept for the gradient."""

    def __init__(self, sizes: _Sizes, dtype: torch.dtype, keep: bool) -> None:
        self.dtype, self.keep = dtype, keep
        self.rows = sizes.rows if keep else sizes.batch  # of tensors
        self.borrowed: list[Tensor] = []  # to give back after the backward pass

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return an uninitialised tensor."""
        count = math.prod(shape)
        if not self.keep or count < 2**18:
            return torch.empty(shape, dtype=dtype or self.dtype, device="cpu")
        self.borrowed.append(_MEMORY.take(count, dtype or self.dtype))
        return self.borrowed[-1][:count].view(shape)


def _forward(recurrence: Recurrence, sources: dict[str, Tensor], keep: bool) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return the output and what `_backward` needs, by the names of `Problem`'s members, and memory to give back."""
    dtype = sources["weight_hidden"].dtype
    sizes = _Sizes(recurrence, dtype)
    allocate = _Allocator(sizes, dtype, keep)
    kept = {"hidden": _padded(sources["hidden"], sizes.hidden)}
    if recurrence.mask is not None:
        kept["mask"] = _padded(recurrence.mask, sizes.hidden)
    if "hidden_scale" in sources:
        kept["hidden_scale"] = _padded(sources["hidden_scale"], sizes.hidden)
        if recurrence.cell.gated_carry:
            kept["gated"] = allocate(allocate.rows, sizes.hidden)
    if sizes.history:
        kept["data"] = _padded(sources["data"], sizes.input)
        dropped = {"past": _padded(sources["past"], sizes.hidden)}  # the backward pass does not need it
    else:
        halves = sources["projected"].unflatten(-1, (2, -1))
        dropped = {"projected": _padded(halves, sizes.hidden).flatten(-2)}
    kept |= _cell_results(recurrence, sizes, allocate)
    if recurrence.gate is not None:
        kept |= _gate_results(recurrence, recurrence.gate, sizes, allocate)
    normalisation = recurrence.normalisation
    statistics = normalisation.running or () if normalisation is not None else ()
    padded = {name: _padded(own, sizes.hidden) for name, own in zip(("running_mean", "running_variance"), statistics)}
    _call("forward", recurrence, sizes, {**sources, **kept, **dropped, **padded}, keep)
    if normalisation is not None and normalisation.use_batch:
        for own, new in zip(statistics, padded.values()):
            own.copy_(new[: len(own)])
    return kept, allocate.borrowed


def _cell_results(recurrence: Recurrence, sizes: _Sizes, allocate: _Allocator) -> dict[str, Tensor]:
    """Allocate what the forward pass computes for the cell."""
    product, rows, width = recurrence.product, allocate.rows, sizes.hidden
    results = {
        "output": allocate(sizes.rows, width),
        "state": allocate(sizes.states, rows, width),
        "input_hidden": allocate(rows, width, dtype=product),
    }
    if product != allocate.dtype or recurrence.mask is not None:
        results["input_state"] = allocate(sizes.states, rows, width, dtype=product)
    if recurrence.normalisation is not None:
        results["deviation"] = allocate(sizes.states, sizes.steps, width)
    if allocate.keep:
        # becomes the gradient of a source, so its memory is not reused
        results["pre_start"] = torch.empty(rows, 2 * width, dtype=product, device="cpu")
        results["pre"] = allocate(len(recurrence.cell.pairs.tails), rows, 2 * width, dtype=product)
    return results


def _gate_results(recurrence: Recurrence, gate: GatePlan, sizes: _Sizes, allocate: _Allocator) -> dict[str, Tensor]:
    """Allocate what the forward pass computes for the input gate."""
    product, rows, width = recurrence.product, allocate.rows, sizes.input
    results = {
        "input_entry": allocate(sizes.entries, sizes.hidden, dtype=product),
        "entered": allocate(sizes.entries, sizes.history, width, dtype=product),
        "gate_state": allocate(sizes.history, rows, width),
        "input_scale": allocate(rows, width),
        "input_data": allocate(rows, width, dtype=product),
    }
    if product != allocate.dtype:
        results["gate_input"] = allocate(sizes.history, rows, width, dtype=product)
    if allocate.keep:
        results["gate_pre"] = allocate(len(gate.pairs.tails), rows, width, dtype=product)
    return results


def _backward(
    recurrence: Recurrence, tensors: dict[str, Tensor], gradient: Tensor, needed: set[str], again: bool
) -> dict[str, Tensor]:
    """Return the gradients of the needed sources from that of the output; keep the tensors if `again`."""
    dtype = tensors["weight_hidden"].dtype
    sizes = _Sizes(recurrence, dtype)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="cpu")

    grads = {"output": _padded(gradient.to(dtype), sizes.hidden), "hidden": empty(sizes.batch, sizes.hidden)}
    for name in {"pre_start", "pre", "gate_pre"} & tensors.keys():
        grads[name] = torch.empty_like(tensors[name]) if again else tensors[name]
    if "hidden_scale" in tensors:
        grads["hidden_scale"] = empty(sizes.rows, sizes.hidden)
    for name in {"mixing", "gate_mixing", "entry_mixing"} & needed:
        grads[name] = torch.empty_like(tensors[name])
    if sizes.history:
        grads["past"] = empty(sizes.history - 1, sizes.batch, sizes.hidden)
        grads["data"] = empty(sizes.rows, sizes.input)
        grads["entered"] = torch.zeros_like(tensors["entered"])  # no step reads some of the entries
    members = {"grad_" + name: tensor for name, tensor in grads.items()}
    _call("backward", recurrence, sizes, {**tensors, **members}, keep=True)

    width = recurrence.hidden_size
    widths = {"hidden": width, "past": width, "hidden_scale": width, "data": recurrence.input_size}
    results = {name: grads[name][..., : widths.get(name)] for name in needed & grads.keys()}
    if "projected" in needed:
        results["projected"] = _halves(grads["pre_start"].to(dtype), width)
    results |= _cell_weight_gradients(recurrence, tensors, grads, needed)
    if recurrence.gate is not None:
        results |= _gate_weight_gradients(recurrence, recurrence.gate, tensors, grads, needed)
    return results


def _cell_weight_gradients(
    recurrence: Recurrence, tensors: dict[str, Tensor], grads: dict[str, Tensor], needed: set[str]
) -> dict[str, Tensor]:
    """Compute the gradients of the cell's weights, one product over all rows each; arguments as of `_backward`."""
    width, weight = recurrence.hidden_size, tensors["weight_hidden"]
    results: dict[str, Tensor] = {}
    if "weight_hidden" in needed:
        products = multiply(tensors["input_hidden"][:, :width].t(), grads["pre_start"])
        results["weight_hidden"] = _halves(products, width).to(weight.dtype)
    if "weight_input" in needed:
        products = multiply(tensors["input_data"][:, : recurrence.input_size].t(), grads["pre_start"])
        results["weight_input"] = _halves(products, width).to(weight.dtype)
    if "weight_nodes" in needed:
        inputs = tensors.get("input_state", tensors["state"])[..., :width]
        nodes = [0, *recurrence.cell.nodes]
        results["weight_nodes"] = grad_nodes = _in_huge_pages(torch.empty_like(tensors["weight_nodes"]))
        if len(nodes) <= len(grad_nodes):  # there are dead nodes
            grad_nodes.zero_()
        for i, products in _pairs_gradients(recurrence.cell.pairs, inputs, grads["pre"]):
            grad_nodes[nodes[i] - 1] = _halves(products, width)
    return results


def _gate_weight_gradients(
    recurrence: Recurrence, gate: GatePlan, tensors: dict[str, Tensor], grads: dict[str, Tensor], needed: set[str]
) -> dict[str, Tensor]:
    """Compute the gradients of the input gate's weights; arguments as of `_backward`."""
    width, weight = recurrence.input_size, tensors["weight_hidden"]
    results: dict[str, Tensor] = {}
    if "weight_entry" in needed:
        inputs = tensors["input_entry"][:, : recurrence.hidden_size]
        products = multiply(inputs.t(), grads["entered"].flatten(1))  # [H, m * Dp]
        entries = products.unflatten(1, (len(gate.entries), -1))[..., :width]  # [H, m, D]
        results["weight_entry"] = entries.transpose(0, 1).to(weight.dtype)
    if "weight_gate" in needed and gate.pairs.tails:
        inputs = tensors.get("gate_input", tensors["gate_state"])[..., :width]
        results["weight_gate"] = torch.zeros_like(tensors["weight_gate"])
        for i, products in _pairs_gradients(gate.pairs, inputs, grads["gate_pre"]):
            results["weight_gate"][i] = products[:, :width]
    return results


def _halves(pre: Tensor, size: int) -> Tensor:
    """Return [c | z] without the padding of each half to a larger width."""
    return pre if pre.shape[-1] == 2 * size else pre.unflatten(-1, (2, -1))[..., :size].flatten(-2)


def _pairs_gradients(pairs: PairPlan, states: Tensor, grad_pre: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield nodes and the gradients of their weights, [E, F], from [nodes, S, E] and [pairs, S, F]."""
    for i, (first, last) in enumerate(zip(pairs.first, pairs.first[1:])):
        tails = pairs.tails[first:last]
        if tails and tails == tuple(range(tails[0], tails[0] + len(tails))):  # one product for all of them
            inputs = states[tails[0] : tails[-1] + 1].flatten(0, 1)
            yield i, multiply(inputs.t(), grad_pre[first:last].flatten(0, 1))
        elif tails:
            products = (multiply(states[tail].t(), grad_pre[first + n]) for n, tail in enumerate(tails))
            yield i, reduce(torch.add, products)
