"""Export to ONNX, and taggers that need neither PyTorch nor Flair."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flair_nas.errors import FlairNasError

if TYPE_CHECKING:
    from flair_nas.onnx.check import check_export as check_export
    from flair_nas.onnx.int8 import quantize_tagger as quantize_tagger
    from flair_nas.onnx.layer import export_layer as export_layer
    from flair_nas.onnx.tagger import export_tagger as export_tagger
    from flair_nas.runtime.tagger import Tagger as Tagger

_HOMES = {
    "Tagger": "runtime.tagger",
    "check_export": "onnx.check",
    "export_layer": "onnx.layer",
    "export_tagger": "onnx.tagger",
    "quantize_tagger": "onnx.int8",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'flair_nas.onnx' has no attribute {name!r}")
    try:
        return getattr(import_module(f"flair_nas.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise FlairNasError("onnx is not installed; pip install onnx onnxruntime") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
