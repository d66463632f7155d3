"""A recurrence run by the native kernels: one call forwards, one backwards, and one product per weight's gradient."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
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

_KINDS: dict[str, type[Any]] = {"std::int64_t": ctypes.c_int64, "double": ctypes.c_double}


@lru_cache(maxsize=8)
def _problem_type(library: ctypes.CDLL) -> type[ctypes.Structure]:
    """The struct that the library is called with, as it says itself.

    Raises:
        FlairNasError: it has other operations or forms of gates than Python.
    """
    for function, names in (("flair_nas_operations", OPERATIONS), ("flair_nas_gate_forms", GATE_FORMS)):
        told = build.told(library, function).split()
        if told != list(names):
            raise FlairNasError(
                f"the native kernels know {', '.join(told)}, Python {', '.join(names)}: flair_nas/nn/operations.py and "
                "kernels/native/operations.h must have the same in one order"
            )
    members = [member.rsplit(" ", 1) for member in build.told(library, "flair_nas_members").split(";") if member]
    fields = [(name, ctypes.c_void_p if kind.endswith("*") else _KINDS[kind]) for kind, name in members]
    problem = type("Problem", (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(problem) == library.flair_nas_problem_bytes(), "Python and C++ lay the struct out differently"
    return problem


def _problem(members: Mapping[str, Any]) -> ctypes.Structure:
    """The struct with these members; those that are not named are 0 or null."""
    library = build.library()
    assert library is not None
    kind = _problem_type(library)
    if unknown := members.keys() - {name for name, *_ in kind._fields_}:
        raise AttributeError(f"the native kernels know no {', '.join(sorted(unknown))}")
    return kind(**members)


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Runs a recurrence, as `flair_nas.nn.kernels.engine.Engine` says; its cell has the highway form.

    Args:
        recurrence: what to run.
        sources: what it depends on.
    """
    tensors = {name: tensor.contiguous() for name, tensor in sources.items()}
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors.values()):
        output: Tensor = _NativeRecurrence.apply(recurrence, tuple(tensors), *tensors.values())
        return output
    _MEMORY.clear()
    return _forward(recurrence, tensors, keep=False)[0]["output"][:, : recurrence.hidden_size].contiguous()


class _NativeRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recurrence: Recurrence, names: tuple[str, ...], *tensors: Tensor) -> Tensor:
        sources = dict(zip(names, tensors))
        kept, ctx.borrowed = _forward(recurrence, sources, keep=True)
        unread = {"projected", "past", *(name for name in names if kept.get(name, sources[name]) is not sources[name])}
        ctx.saved = [name for name in names if name not in unread]  # of others the backward pass has padded copies
        ctx.recurrence, ctx.names, ctx.kept = recurrence, names, kept
        ctx.save_for_backward(*(sources[name] for name in ctx.saved))
        # a copy, which the caller may change
        return kept["output"][:, : recurrence.hidden_size].clone(memory_format=torch.contiguous_format)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        known = {**dict(zip(ctx.saved, ctx.saved_tensors)), **ctx.kept}
        wanted = {name for name, needed in zip(ctx.names, ctx.needs_input_grad[2:]) if needed}
        again = keeps_graph()
        found = _backward(ctx.recurrence, known, gradients[0], wanted, again)
        if not again:
            _MEMORY.give_back(ctx.borrowed)
            ctx.kept = ctx.borrowed = None
        return (None, None, *(found.get(name) for name in ctx.names))


# --- sizes and memory ---


class _Sizes:
    """The sizes of a recurrence; Hp and Dp are H and D up to whole registers."""

    def __init__(self, recurrence: Recurrence, dtype: torch.dtype) -> None:
        library = build.library()
        assert library is not None
        lanes = library.flair_nas_vector_bytes() // dtype.itemsize
        self.steps, self.batch, self.rows = len(recurrence.sizes), recurrence.sizes[0], sum(recurrence.sizes)
        self.states = len(recurrence.cell.scale)
        self.history = len(recurrence.gate.entries) if recurrence.gate else 0
        self.hidden = -(-recurrence.hidden_size // lanes) * lanes  # Hp
        self.input = -(-recurrence.input_size // lanes) * lanes  # Dp
        self.entries = (self.history - 1) * self.batch + self.rows  # states that the input gate's entries read


def _in_huge_pages(tensor: Tensor) -> Tensor:
    """The tensor, about to be filled, with as few pages for the system to find as it can have."""
    library = build.library()
    assert library is not None
    library.flair_nas_advise(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_long(tensor.numel() * tensor.element_size()))
    return tensor


class _Memory:
    """Memory for what a pass keeps for its gradient, given back after it, since that of the next pass is as large.

    The system hands out memory zeroed, which took a sixth of the time of a training step. A pass without gradients
    lets go of all of it.
    """

    def __init__(self) -> None:
        self.free: list[Tensor] = []
        self.lock = threading.Lock()

    def take(self, count: int, dtype: torch.dtype) -> Tensor:
        """At least `count` numbers, and not many more."""
        with self.lock:
            for place, tensor in enumerate(self.free):
                if tensor.dtype == dtype and count <= tensor.numel() <= 2 * count:
                    return self.free.pop(place)
        return _in_huge_pages(torch.empty(count, dtype=dtype, device="cpu"))

    def give_back(self, tensors: list[Tensor]) -> None:
        """Keeps them for the next, and of older ones no more than they are."""
        room = sum(tensor.numel() for tensor in tensors)
        with self.lock:
            older, self.free = self.free, list(tensors)
            for tensor in older:
                room -= tensor.numel()
                if room >= 0:
                    self.free.append(tensor)

    def clear(self) -> None:
        """Lets go of all that is not in use."""
        with self.lock:
            self.free = []


_MEMORY = _Memory()


def _padded(tensor: Tensor, width: int) -> Tensor:
    """The tensor with zeros behind its last dimension, contiguous."""
    missing = width - tensor.shape[-1]
    return (pad(tensor, (0, missing)) if missing else tensor).contiguous()


def _padded_halves(tensor: Tensor, width: int) -> Tensor:
    """The same for [..., 2H], each half to `width`."""
    return _padded(tensor.unflatten(-1, (2, -1)), width).flatten(-2)


@lru_cache(maxsize=1024)
def _arrays(cell: CellPlan, gate: GatePlan | None, number: Any) -> dict[str, Any]:
    """What `Problem` points to of the plans; `number` is the type of the shares."""

    def of_pairs(pairs: PairPlan, prefix: str) -> dict[str, Any]:
        count = len(pairs.tails)
        found = {prefix + "tail": (ctypes.c_int64 * count)(*pairs.tails)}
        found[prefix + "code"] = (ctypes.c_int64 * count)(*pairs.codes)
        if pairs.shares is not None:
            found[prefix + "shares"] = (number * (len(OPERATIONS) * count))(
                *(share for row in pairs.shares for share in row)
            )
        return found

    found = {
        "level_start": (ctypes.c_int64 * len(cell.level_start))(*cell.level_start),
        "first_pair": (ctypes.c_int64 * len(cell.pairs.first))(*cell.pairs.first),
        "scale": (number * len(cell.scale))(*cell.scale),
        "share_of_output": (number * len(cell.output))(*cell.output),
        **of_pairs(cell.pairs, ""),
    }
    if gate is not None:
        found |= of_pairs(gate.pairs, "gate_")
        found["gate_first"] = (ctypes.c_int64 * len(gate.pairs.first))(*gate.pairs.first)
        found["entry_code"] = (ctypes.c_int64 * len(gate.entries))(*gate.entries)
    return found


def _call(name: str, recurrence: Recurrence, sizes: _Sizes, tensors: Mapping[str, Tensor], keep: bool) -> None:
    """Calls ``forward`` or ``backward`` of the library with all tensors by the names of `Problem`'s members."""
    cell, normalisation = recurrence.cell, recurrence.normalisation
    number = ctypes.c_float if tensors["weight_hidden"].dtype == torch.float32 else ctypes.c_double
    weights = tensors["weight_nodes"]
    places = [0, *(weights.data_ptr() + (node - 1) * weights.stride(0) * weights.element_size() for node in cell.nodes)]
    arrays = {
        "sizes": (ctypes.c_int64 * sizes.steps)(*recurrence.sizes),
        "weight_nodes": (ctypes.c_void_p * len(places))(*places),
        **_arrays(cell, recurrence.gate, number),
    }
    members: dict[str, Any] = {key: ctypes.addressof(array) for key, array in arrays.items()}
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
        members |= {"norm": 1 if normalisation.of_batch else 2}
        members |= {"momentum": normalisation.momentum, "epsilon": normalisation.epsilon}
    if recurrence.gate is not None:
        members |= {"form": recurrence.gate.form_code, "gate_pairs": len(recurrence.gate.pairs.tails)}
    kind = str(recurrence.product).removeprefix("torch.")
    with torch.profiler.record_function("flair_nas::recurrence" + ("_backward" if name == "backward" else "")):
        failed = getattr(build.library(), f"flair_nas_{name}_{kind}")(ctypes.byref(_problem(members)))
    if failed == 2:
        raise ValueError(
            f"a plan with a code that the native kernels do not know: {recurrence.cell}, {recurrence.gate}"
        )
    if failed:
        raise MemoryError(
            f"a recurrence of {sizes.rows} tokens and hidden size {recurrence.hidden_size} needs more memory"
        )


# --- the two passes ---


def _forward(recurrence: Recurrence, sources: dict[str, Tensor], keep: bool) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Runs it.

    Returns:
        The output and, with `keep`, what `_backward` needs, by the names of `Problem`'s members; memory to give back.
    """
    weight = sources["weight_hidden"]
    dtype, product = weight.dtype, recurrence.product
    sizes = _Sizes(recurrence, dtype)
    rows = sizes.rows if keep else sizes.batch

    borrowed: list[Tensor] = []

    def room(*shape: int, of: torch.dtype = dtype) -> Tensor:
        if not keep or math.prod(shape) < 2**18:
            return torch.empty(shape, dtype=of, device="cpu")
        borrowed.append(_MEMORY.take(math.prod(shape), of))
        return borrowed[-1][: math.prod(shape)].view(shape)

    given: dict[str, Tensor] = {}  # what the backward pass does not need
    found = {"hidden": _padded(sources["hidden"], sizes.hidden)}
    if recurrence.mask is not None:
        found["mask"] = _padded(recurrence.mask, sizes.hidden)
    if "factor" in sources:
        found["factor"] = _padded(sources["factor"], sizes.hidden)
        if recurrence.cell.gated_carry:
            found["gated"] = room(rows, sizes.hidden)
    if sizes.history:
        found["data"] = _padded(sources["data"], sizes.input)
        given["past"] = _padded(sources["past"], sizes.hidden)
        found["input_entry"] = room(sizes.entries, sizes.hidden, of=product)
        found["entered"] = room(sizes.entries, sizes.history, sizes.input, of=product)
        found["gate_state"] = room(sizes.history, rows, sizes.input)
        found["gate_factor"] = room(rows, sizes.input)
        found["input_data"] = room(rows, sizes.input, of=product)
        if product != dtype:
            found["gate_input"] = room(sizes.history, rows, sizes.input, of=product)
        if keep:
            assert recurrence.gate is not None
            found["gate_pre"] = room(len(recurrence.gate.pairs.tails), rows, sizes.input, of=product)
    else:
        given["projected"] = _padded_halves(sources["projected"], sizes.hidden)
    found["output"] = room(sizes.rows, sizes.hidden)
    found["state"] = room(sizes.states, rows, sizes.hidden)
    found["input_hidden"] = room(rows, sizes.hidden, of=product)
    if product != dtype or recurrence.mask is not None:
        found["input_state"] = room(sizes.states, rows, sizes.hidden, of=product)
    if keep:
        found["pre_start"] = torch.empty(
            rows, 2 * sizes.hidden, dtype=product, device="cpu"
        )  # becomes the gradient of a source
        found["pre"] = room(len(recurrence.cell.pairs.tails), rows, 2 * sizes.hidden, of=product)
    running: dict[str, Tensor] = {}
    normalisation = recurrence.normalisation
    if normalisation is not None:
        found["deviation"] = room(sizes.states, sizes.steps, sizes.hidden)
        if normalisation.mean is not None and normalisation.variance is not None:
            running["running_mean"] = _padded(normalisation.mean, sizes.hidden)
            running["running_variance"] = _padded(normalisation.variance, sizes.hidden)
    _call("forward", recurrence, sizes, {**sources, **found, **given, **running}, keep)
    if normalisation is not None and normalisation.of_batch:
        for own, new in zip((normalisation.mean, normalisation.variance), running.values()):
            assert own is not None
            own.copy_(new[: len(own)])  # brought up to date
    return found, borrowed


def _backward(
    recurrence: Recurrence,
    tensors: dict[str, Tensor],
    gradient: Tensor,
    wanted: set[str],
    again: bool,
) -> dict[str, Tensor]:
    """The gradients of the sources that are wanted, by name.

    Args:
        recurrence: what was run.
        tensors: its sources, and what `_forward` kept.
        gradient: of the output, [S, H].
        wanted: names of sources.
        again: another backward pass may follow, so nothing that was kept may be overwritten.
    """
    dtype, width, input_width = tensors["weight_hidden"].dtype, recurrence.hidden_size, recurrence.input_size
    sizes = _Sizes(recurrence, dtype)

    def room(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="cpu")

    of = {"of_hidden": room(sizes.batch, sizes.hidden)}
    for name in {"pre_start", "pre", "gate_pre"} & tensors.keys():
        of["of_" + name] = torch.empty_like(tensors[name]) if again else tensors[name]
    if "factor" in tensors:
        of["of_factor"] = room(sizes.rows, sizes.hidden)
    for name in {"shares", "gate_shares", "entry_shares"} & wanted:
        of["of_" + name] = torch.empty_like(tensors[name])
    if sizes.history:
        of["of_past"] = room(sizes.history - 1, sizes.batch, sizes.hidden)
        of["of_data"] = room(sizes.rows, sizes.input)
        of["of_entered"] = torch.zeros_like(tensors["entered"])  # there are entries that no step reads
    of["of_output"] = _padded(gradient.to(dtype), sizes.hidden)
    _call("backward", recurrence, sizes, {**tensors, **of}, keep=True)

    of_start = of["of_pre_start"]  # [S, 2 Hp]
    found: dict[str, Tensor] = {}
    for name, size in (("hidden", width), ("past", width), ("factor", width), ("data", input_width), ("shares", None),
                       ("gate_shares", None), ("entry_shares", None)):  # fmt: skip
        if name in wanted:
            found[name] = of["of_" + name][..., :size]
    if "projected" in wanted:
        found["projected"] = _halves(of_start.to(dtype), width)
    if "weight_hidden" in wanted:
        found["weight_hidden"] = _halves(_weight_gradient(tensors["input_hidden"][:, :width], of_start), width).to(
            dtype
        )
    if "weight_nodes" in wanted:
        inputs = tensors.get("input_state", tensors["state"])[..., :width]
        nodes = [0, *recurrence.cell.nodes]
        found["weight_nodes"] = of_nodes = _in_huge_pages(torch.empty_like(tensors["weight_nodes"]))
        if len(nodes) <= len(of_nodes):  # there are dead nodes
            of_nodes.zero_()
        for i, gradients in _pairs_gradients(recurrence.cell.pairs, inputs, of["of_pre"]):
            of_nodes[nodes[i] - 1] = _halves(gradients, width)
    if "weight_input" in wanted:
        of_input = _weight_gradient(tensors["input_data"][:, :input_width], of_start)
        found["weight_input"] = _halves(of_input, width).to(dtype)
    if "weight_entry" in wanted:
        entries = _weight_gradient(tensors["input_entry"][:, :width], of["of_entered"].flatten(1))  # [H, m * Dp]
        of_entries = entries.unflatten(1, (sizes.history, -1))[..., :input_width]  # [H, m, D]
        found["weight_entry"] = of_entries.transpose(0, 1).to(dtype)
    if "weight_gate" in wanted and recurrence.gate is not None and recurrence.gate.pairs.tails:
        inputs = tensors.get("gate_input", tensors["gate_state"])[..., :input_width]
        found["weight_gate"] = torch.zeros_like(tensors["weight_gate"])
        for i, gradients in _pairs_gradients(recurrence.gate.pairs, inputs, of["of_gate_pre"]):
            found["weight_gate"][i] = gradients[:, :input_width]
    return found


def _halves(pre: Tensor, size: int) -> Tensor:
    """[c | z] of width 2 * size from [c | z] with zeros behind each."""
    return pre if pre.shape[-1] == 2 * size else pre.unflatten(-1, (2, -1))[..., :size].flatten(-2)


def _pairs_gradients(pairs: PairPlan, states: Tensor, of_pre: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The gradients of the nodes' weights.

    Args:
        pairs: the pairs.
        states: of all nodes, as they enter products, [n, S, E].
        of_pre: gradients of the pairs' products, [pairs, S, F].

    Yields:
        Each node that reads others, and the gradient of its weights, [E, F].
    """
    for i, (first, last) in enumerate(zip(pairs.first, pairs.first[1:])):
        tails = pairs.tails[first:last]
        if tails and tails == tuple(range(tails[0], tails[0] + len(tails))):  # one product for all of them
            inputs = states[tails[0] : tails[-1] + 1].flatten(0, 1)
            yield i, _weight_gradient(inputs, of_pre[first:last].flatten(0, 1))
        elif tails:
            products = (_weight_gradient(states[tail], of_pre[first + n]) for n, tail in enumerate(tails))
            yield i, reduce(torch.add, products)


def _weight_gradient(inputs: Tensor, gradients: Tensor) -> Tensor:
    """One product over all rows, [E, F] from [S, E] and [S, F]."""
    return torch.mm(inputs.t(), gradients)
