"""ONNX models on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from flair_nas.errors import FlairNasError, shown
from flair_nas.runtime.decoding import Floats

STEPS = 1 << 13
"""Time steps of a run, with padding, up to which onnxruntime keeps the memory for the next run."""

T = TypeVar("T")


def batch_by_length(items: Iterable[T], length: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items of like length together, the longest ones first: at most `STEPS` steps with padding, or one item."""
    order = sorted(items, key=length)
    while order:
        count = max(1, STEPS // max(1, length(order[-1])))
        yield order[-count:]
        del order[-count:]


class Model:
    """A model of an exported tagger.

    Args:
        path: the file.
        threads: threads of onnxruntime; 0 for all cores.

    Raises:
        FlairNasError: onnxruntime is missing or cannot read the file.
    """

    def __init__(self, path: Path, threads: int) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise FlairNasError("onnxruntime is not installed; pip install onnxruntime") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.path = path
        try:
            self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise FlairNasError(f"{path}: onnxruntime cannot read it ({shown(error)}); export once more") from None
        self._returning = onnxruntime.RunOptions()
        self._returning.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, NDArray[Any]]) -> list[Floats]:
        """Return outputs, all of them for None; the first input is [B, T, ...]."""
        rows, steps = next(iter(inputs.values())).shape[:2]
        options = self._returning if rows * steps > STEPS else None  # each time, it would cost time
        try:
            values: list[Floats] = self.session.run(outputs, inputs, options)
        except Exception as error:
            raise FlairNasError(
                f"{self.path}: onnxruntime cannot run it ({shown(error)}); give shorter sentences if memory is short, "
                "else export once more"
            ) from None
        return values
