"""Exported taggers in 8 bits."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flair_nas.errors import FlairNasError, shown
from flair_nas.runtime.settings import SETTINGS
from flair_nas.storage.files import copy_whole, hash_file, write_text


def quantize_tagger(folder: Path) -> None:
    """Replace the matrices of an exported tagger by 8-bit integers. Word vectors stay as they are.

    Inputs of a product are scaled to 8 bits as they come (dynamic quantization).

    Args:
        folder: a folder of `export_tagger`.

    Raises:
        FlairNasError: onnxruntime is missing, or fails.
        OSError: the folder cannot be written.
    """
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ModuleNotFoundError:
        raise FlairNasError("onnxruntime is not installed; pip install onnx onnxruntime") from None
    path = folder / SETTINGS
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()  # as long as some files are of one kind and some of the other
    with _without_advice(), tempfile.TemporaryDirectory() as directory:
        for name in (name for name in settings["files"] if name.endswith(".onnx")):
            source, target = Path(directory, name), Path(directory, "int8.onnx")  # files of its own appear beside
            copy_whole(folder / name, source)
            try:
                quantize_dynamic(source, target, weight_type=QuantType.QInt8, extra_options={"EnableSubgraph": True})
            except OSError:
                raise
            except Exception as error:  # its own files may be cut short without an error
                problem = f"{folder / name}: cannot be turned into 8 bits ({shown(error)})"
                raise FlairNasError(f"{problem}; if the disk is not full, export without --int8") from None
            copy_whole(target, folder / name)
            settings["files"][name] = hash_file(folder / name)
    write_text(path, json.dumps({**settings, "int8": True}))


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Leave out the advice, on the root logger, to prepare a model in ways that the loop of a cell does not take."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
