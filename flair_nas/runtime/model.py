"""ONNX models on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flair_nas.errors import FlairNasError, shown

Floats = NDArray[np.floating[Any]]
STEPS = 1 << 13
"""Time steps of a run, with padding, up to which onnxruntime keeps the memory for the next run."""


class Model:
    """A model of an exported tagger.

    Args:
        path: the file.
        threads: threads of onnxruntime; 0 for all cores.
        widths: size of the last axis by name, of inputs and outputs that the model must have; None for any size.

    Raises:
        FlairNasError: onnxruntime is missing or cannot read the file, or the file is another model.
    """

    def __init__(self, path: Path, threads: int, widths: Mapping[str, int | None]) -> None:
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
        shapes = {value.name: value.shape for value in (*self.session.get_inputs(), *self.session.get_outputs())}
        for name, width in widths.items():
            if not shapes.get(name) or width not in (None, shapes[name][-1]):
                raise FlairNasError(f"{path}: it is no model of this tagger, its {name} does not fit; export once more")
        self._returning = onnxruntime.RunOptions()
        self._returning.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, NDArray[Any]]) -> list[Floats]:
        """Return outputs, all of them for None; the first input is [B, T, ...]."""
        rows, steps = next(iter(inputs.values())).shape[:2]
        options = self._returning if rows * steps > STEPS else None  # each time, it would cost time
        try:
            found: list[Floats] = self.session.run(outputs, inputs, options)
        except Exception as error:
            raise FlairNasError(
                f"{self.path}: onnxruntime cannot run it ({shown(error)}); give shorter sentences if memory is short, "
                "else export once more"
            ) from None
        return found
