"""The engine of CUDA graphs: `levels` or `columns`, of a whole sequence in one launch forward and one back.

On a GPU a loop over time steps is bound by the launches of its many small kernels; a graph of them is launched at once.
It has fixed shapes and fixed memory. So batches are padded to a few shapes (what is padded is never read, and its
gradient is zero), the most recent graphs are kept, and while the gradient of a sequence may still be asked for, which
is in its graph's memory, another one of the same kind gets a graph of its own.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import weakref
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from flair_nas.device import float32_products, is_out_of_memory
from flair_nas.errors import brief
from flair_nas.kernels import columns, levels, triton_elementwise
from flair_nas.kernels import elementwise as of_pytorch
from flair_nas.kernels.engine import Normalisation, Recurrence
from flair_nas.kernels.padding import padded
from flair_nas.kernels.tracing import first_order_only

log = logging.getLogger("flair_nas")

_MOST, _SHARE = 64, 0.25  # graphs that are kept, and how much of a GPU's memory they have at most

_graphs: OrderedDict[Hashable, _Graph] = OrderedDict()
_failed: dict[Hashable, str] = {}  # why there is no graph of a kind, so that it is not tried again
_broken: list[str] = []  # why nothing is captured any more: CUDA does not tell in what state a capture has failed
fallbacks: Counter[str] = Counter()
"""How often there was no graph, and why."""


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Runs a recurrence, as `flair_nas.kernels.engine.Engine` says, by `columns` where there can be no graph."""
    if torch.cuda.is_current_stream_capturing() or torch.is_anomaly_enabled() or _has_hooks():
        return _columns(recurrence, sources, "another capture, anomaly detection or hooks on saved tensors")
    dense, given, rows = padded(recurrence, sources)
    kind = _kind(dense, given)
    graph = _graph_for(kind, dense, given)
    if graph is None:
        return _columns(recurrence, sources, _failed[kind])
    output = graph(dense, given)
    return output if rows is None else output.index_select(0, rows)


def _columns(recurrence: Recurrence, sources: Mapping[str, Tensor], reason: str) -> Tensor:
    fallbacks[reason] += 1
    if fallbacks[reason] == 1:
        log.warning("no CUDA graph here (%s), so PyTorch's operators run one by one", reason)
    return columns.run(recurrence, sources, of_pytorch)  # it may be Triton that failed


def _loop(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """What is captured."""
    elementwise = _elementwise()
    if elementwise is triton_elementwise and levels.can_run(recurrence):
        return levels.run(recurrence, sources)
    return columns.run(recurrence, sources, elementwise)


def _elementwise() -> ModuleType:
    return of_pytorch if find_spec("triton") is None else triton_elementwise


def _has_hooks() -> bool:
    """Whether saved tensors are packed, for example moved to the CPU: a graph's memory cannot be."""
    ask = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return ask is not None and ask(True) is not None


class _Use:
    """That a sequence's gradient may still be asked for: it is in the memory of this graph, which lives as long."""

    def __init__(self, graph: _Graph) -> None:
        self.graph, self.ended = graph, False


class _Graph:
    """The graph of one kind of recurrence, forward and back.

    Args:
        recurrence: of this kind.
        sources: its sources; as many graphs follow as there are launches, each with other tensors of these shapes.
    """

    def __init__(self, recurrence: Recurrence, sources: Mapping[str, Tensor]) -> None:
        self.names, self.use = tuple(sources), weakref.ref(_Use(self))  # of nobody
        self.state = self._own(recurrence.normalisation)
        own, device = recurrence._replace(normalisation=self.state), sources["hidden"].device
        lower = recurrence.product != sources["weight_hidden"].dtype

        def loop(*tensors: Tensor) -> Tensor:
            mask = tensors[-1] if len(tensors) > len(self.names) else None
            with torch.autocast(device.type, recurrence.product, enabled=lower, cache_enabled=False):
                return _loop(own._replace(mask=mask), dict(zip(self.names, tensors)))

        learns = torch.is_grad_enabled()
        samples = tuple(t.detach().clone().requires_grad_(t.requires_grad and learns) for t in sources.values())
        if recurrence.mask is not None:
            samples = (*samples, recurrence.mask.clone())
        before = _reserved(device)
        with _capturing(device), torch.autocast(device.type, enabled=False):
            self.call: Any = torch.cuda.make_graphed_callables(loop, samples, allow_unused_input=True)
        self.bytes = max(0, _reserved(device) - before)

    @staticmethod
    def _own(normalisation: Normalisation | None) -> Normalisation | None:
        """With running statistics of its own, which each launch brings up to date."""
        if normalisation is None:
            return None
        mean, variance = (None if t is None else t.clone() for t in (normalisation.mean, normalisation.variance))
        return normalisation._replace(mean=mean, variance=variance)

    def is_free(self) -> bool:
        """Whether nobody may still ask for the gradient of what went through it last."""
        use = self.use()
        return use is None or use.ended

    def __call__(self, recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
        """Launches it with these sources; the output is a tensor of its own."""
        tensors = [sources[name] for name in self.names]
        learned = [place for place, tensor in enumerate(tensors) if tensor.requires_grad]
        masks = [] if recurrence.mask is None else [recurrence.mask]
        pairs = self._statistics(recurrence.normalisation)
        for own, given in pairs:
            own.copy_(given)
        if torch.is_grad_enabled() and learned:
            use = _Use(self)
            self.use = weakref.ref(use)
            entered = _Enter.apply(use, *(tensors[place] for place in learned))
            for place, tensor in zip(learned, entered):
                tensors[place] = tensor
            output: Tensor = _Leave.apply(use, self.call(*tensors, *masks))
        else:
            output = self.call(*tensors, *masks).clone()
        for own, given in pairs:
            given.data.copy_(own)  # not as a change that forbids the gradient of what went before, as in PyTorch's own
        return output

    def _statistics(self, given: Normalisation | None) -> list[tuple[Tensor, Tensor]]:
        """The graph's own running statistics, and those of who calls."""
        if given is None or self.state is None:
            return []
        pairs = [(self.state.mean, given.mean), (self.state.variance, given.variance)]
        return [(own, of_caller) for own, of_caller in pairs if own is not None and of_caller is not None]


class _Enter(torch.autograd.Function):
    """Gives gradients memory of their own: that of the graph is written over by its next launch."""

    @staticmethod
    def forward(ctx: Any, use: _Use, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.use = use
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.use.ended = True
        return (None, *(None if gradient is None else gradient.clone() for gradient in gradients))


class _Leave(torch.autograd.Function):
    """The same for the output; and keeps the graph's memory as it is until the gradient is there."""

    @staticmethod
    def forward(ctx: Any, use: _Use, output: Tensor) -> Tensor:
        ctx.use = use
        return output.clone()

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.use.ended:  # what it was computed from has been written over, retain_graph=True or not
            raise RuntimeError(
                "a second backward through a sequence in a CUDA graph: add the losses and go back once, or set the "
                "environment variable FLAIR_NAS_KERNELS=columns"
            )
        return (None, gradients[0])


def _graph_for(kind: Hashable, recurrence: Recurrence, sources: Mapping[str, Tensor]) -> _Graph | None:
    """A graph that nobody uses, kept or new; None if there can be none, and `_failed` says why."""
    number = 0
    while (graph := _graphs.get((kind, number))) is not None and not graph.is_free():
        number += 1
    if graph is None:
        graph = _captured(kind, recurrence, sources)
        if graph is None:
            return None
        _graphs[kind, number] = graph
    _graphs.move_to_end((kind, number))
    most = _memory(sources["hidden"].device)
    while len(_graphs) > 1 and (len(_graphs) > _MOST or sum(kept.bytes for kept in _graphs.values()) > most):
        drop(max(1, len(_graphs) // 4))
    return graph


def drop(count: int | None = None) -> None:
    """Drops graphs, and gives their memory back; who uses one keeps it.

    Args:
        count: how many of those that have not been used for longest; None for all.
    """
    for _ in range(len(_graphs) if count is None else count):
        _graphs.popitem(last=False)
    gc.collect()  # each has a class of its own in PyTorch, and a class holds itself
    torch.cuda.empty_cache()


def _memory(device: torch.device) -> float:
    return _SHARE * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def _captured(kind: Hashable, recurrence: Recurrence, sources: Mapping[str, Tensor]) -> _Graph | None:
    """A new graph, tried once more without those that are kept if there is no memory; None if there can be none."""
    for last in (False, True):
        if _broken:
            _failed[kind] = _broken[0]
        if kind in _failed:
            break
        try:
            return _Graph(recurrence, sources)
        except Exception as error:  # Triton has errors of its own
            first = error.__context__ or error  # leaving the capture fails, too
            reason = brief(f"{type(first).__name__}: {first}", 300)
            log.debug("a sequence could not be captured", exc_info=True)
            if not (is_out_of_memory(error) or is_out_of_memory(first)):
                _broken.append(reason)
        if last or _broken:
            _failed[kind] = reason
        drop()  # once the error has gone, which holds what was being made
    return None


@contextlib.contextmanager
def _capturing(device: torch.device) -> Iterator[None]:
    """On that device; back to the stream and to the random numbers of before, which a failed capture does not do.

    PyTorch 2.11 takes a generator that was in a failed capture to be captured for ever.
    """
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        stream, of_graphs = torch.cuda.current_stream(), torch.cuda.graph.default_capture_stream
        if of_graphs is not None and of_graphs.device != stream.device:
            torch.cuda.graph.default_capture_stream = None  # PyTorch makes one, for all devices
        generator = torch.cuda.default_generators[stream.device.index]
        numbers = generator.graphsafe_get_state() if hasattr(generator, "clone_state") else None
        if numbers is not None:
            generator.graphsafe_set_state(generator.clone_state())  # nothing is drawn from it
        try:
            yield
        finally:
            torch.cuda.set_stream(stream)
            if numbers is not None:
                generator.graphsafe_set_state(numbers)


def _kind(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Hashable:
    """All that a graph depends on."""
    learns, normalisation = torch.is_grad_enabled(), recurrence.normalisation
    shapes = tuple((name, t.shape, t.dtype, t.device, t.requires_grad and learns) for name, t in sources.items())
    of_state = normalisation and (
        *(normalisation.of_batch, normalisation.momentum, normalisation.epsilon),
        *(None if t is None else t.dtype for t in (normalisation.mean, normalisation.variance)),
    )
    device = sources["hidden"].device
    of_products = (recurrence.product, float32_products(device), torch.are_deterministic_algorithms_enabled())
    plans = (recurrence.cell, recurrence.gate, tuple(recurrence.sizes), recurrence.mask is not None)
    where = (torch.is_inference_mode_enabled(), torch.cuda.current_stream(device) if device.type == "cuda" else None)
    return (*plans, shapes, of_state, of_products, where)
