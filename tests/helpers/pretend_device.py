"""A device other than the CPU, on any machine; its tensors are in the CPU's memory, and refuse tensors of the CPU.

It is PyTorch's place for devices of others (`privateuseone`, by its experimental interface for Python), under the name
`pretend`. Each operator runs on the CPU once all its tensors are seen to be on the device; so code that mixes devices
fails as it would on a GPU, and results are those of the CPU. Only written to through a view of a view, a tensor does
not change. Importing this changes the process for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as trees
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
KEY = "PrivateUse1"
_COPIES = ("aten::copy_", "aten::_copy_from", "aten::_to_copy")  # between devices
_INDEXED = ("aten::index", "aten::index_put_", "aten::_index_put_impl_")  # whose indices may be on the CPU
# What PyTorch would put together from operators that resize a tensor or write to views
_WHOLE = (
    *("abs", "amax", "any.dim", "argmax", "cumsum", "index_select", "linalg_vector_norm", "logsumexp", "max.dim"),
    *("mean.dim", "nonzero", "sort.stable", "stack", "sum.dim_IntList", "special_entr", "topk", "where.self"),
    *("slice_backward", "select_backward", "constant_pad_nd", "native_batch_norm", "native_batch_norm_backward"),
)

_held: dict[int, Tensor] = {}  # by the storage of what stands for them, tensors of the CPU
run: Counter[str] = Counter()  # the operators so far


def _given(tensor: Tensor) -> Tensor:
    """What stands on the device for a tensor of the CPU."""
    found: Tensor = torch._C._acc.create_empty_tensor(tuple(tensor.shape), tensor.dtype)
    _held[found.untyped_storage()._cdata] = tensor
    return found


def _of(tensor: Tensor) -> Tensor:
    return _held[tensor.untyped_storage()._cdata]


def _is_there(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _run(operator: Any, *arguments: Any, **options: Any) -> Any:
    """Runs any operator on the CPU.

    Raises:
        RuntimeError: some of its tensors are on the device, and others are not.
    """
    name, given = operator._schema.name, trees.tree_leaves((arguments, options))
    run[name] += 1
    for value in given:
        elsewhere = isinstance(value, Tensor) and not _is_there(value) and value.dim() > 0
        index = name in _INDEXED and elsewhere and value.dtype in (torch.long, torch.bool)
        if elsewhere and not index and name not in _COPIES:
            raise RuntimeError(f"{operator}: a tensor {list(value.shape)} on the {value.device} among those on {NAME}")
    own = {id(_of(value)): value for value in given if _is_there(value)}

    def inside(value: Any) -> Any:
        return _of(value) if _is_there(value) else torch.device("cpu") if isinstance(value, torch.device) else value

    def outside(value: Any) -> Any:
        return own[id(value)] if id(value) in own else _given(value) if isinstance(value, Tensor) else value

    found = operator(*trees.tree_map(inside, arguments), **trees.tree_map(inside, options))
    for value in own.values():
        assert _of(value).shape == value.shape, f"{operator} resizes; it belongs to _WHOLE"
    return trees.tree_map(outside, found)


def _whole(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return lambda *arguments, **options: _run(operator, *arguments, **options)


def _made(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*arguments: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        for name in ("layout", "device", "pin_memory", "memory_format"):
            options.pop(name, None)
        return _given(function(*arguments, dtype=dtype, **options))

    return make


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    run["aten::_copy_from"] += 1
    (_of(target) if _is_there(target) else target).copy_(_of(source) if _is_there(source) else source)
    return target


def _strided(tensor: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    held = _of(tensor).contiguous()  # what stands for it seems to be
    return _given(held.as_strided(size, stride, (storage_offset or 0) + held.storage_offset()))


def _viewed(tensor: Tensor, size: list[int], *_: Any) -> Tensor:
    return _given(_of(tensor).reshape(size))


def _moved(value: Any, device: Any) -> Any:
    """Dictionaries, lists and tuples with their tensors on another device."""
    if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
        return type(value)((key, _moved(part, device)) for key, part in value.items())
    if type(value) in (list, tuple):
        return type(value)(_moved(part, device) for part in value)
    return value.detach().to(device) if isinstance(value, Tensor) else value


def _saved(value: Any, *arguments: Any, **options: Any) -> None:
    """`torch.save`, which would ask for the memory of what stands for a tensor."""
    _save(_moved(value, "cpu"), *arguments, **options)


def _loaded(file: Any, map_location: Any = None, **options: Any) -> Any:
    """`torch.load`, likewise."""
    there = map_location is not None and torch.device(map_location).type == NAME
    value = _load(file, map_location="cpu" if there else map_location, **options)
    return _moved(value, map_location) if there else value


_setup_privateuseone_for_python_backend(NAME)
_any = torch.library.Library("_", "IMPL")
_any.fallback(_run, KEY)
_aten = torch.library.Library("aten", "IMPL")
for _name in _WHOLE:
    _aten.impl(_name, _whole(_name), KEY)
for _name, _function in (
    *(("empty.memory_format", torch.empty), ("empty_strided", torch.empty_strided), ("randperm", torch.randperm)),
    *(("arange", torch.arange), ("arange.start", torch.arange), ("arange.start_step", torch.arange)),
    ("linspace", torch.linspace),
):
    _aten.impl(_name, _made(_function), KEY)
for _name in ("view", "_unsafe_view", "_reshape_alias"):
    _aten.impl(_name, _viewed, KEY)
_aten.impl("as_strided", _strided, KEY)
_aten.impl("_copy_from", _copy_from, KEY)
_aten.impl("_local_scalar_dense", lambda tensor: _of(tensor).item(), KEY)
_save, _load = torch.save, torch.load
torch.save, torch.load = _saved, _loaded
DEVICE = torch.device(NAME, 0)
