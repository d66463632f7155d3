"""Exported taggers in 8 bits."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path

from flair_nas.errors import FlairNasError, shown
from flair_nas.runtime.settings import FORMAT, SETTINGS
from flair_nas.storage.files import copy_whole, hash_file, write_text
from flair_nas.storage.folders import whole_files
from flair_nas.storage.paths import user_path


def quantize_tagger(folder: str | Path) -> None:
    """Replace the matrices of an exported tagger by 8-bit integers. Word vectors stay as they are.

    Inputs of a product are scaled to 8 bits as they come (dynamic quantization). A transformer, which suffers most,
    has a scale for each column of a matrix.

    Args:
        folder: a folder of `export_tagger`.

    Raises:
        FlairNasError: onnxruntime is missing, or fails; or the folder is no export, or in use.
        OSError: the folder cannot be written; the export stays as it was.
    """
    folder = user_path(folder)
    if SETTINGS not in files_of_export(folder):
        raise FlairNasError(f"{folder}: is no exported tagger; export one with: flair-nas tag export")
    with whole_files(folder, SETTINGS, files_of_export) as out:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        transformers = {entry.get("model") for entry in settings["embeddings"] if entry["kind"] == "transformer"}
        for name in (name for name in settings["files"] if name.endswith(".onnx")):
            _quantize(folder / name, out / name, per_channel=name in transformers)
            settings["files"][name] = hash_file(out / name)
        write_text(out / SETTINGS, json.dumps({**settings, "int8": True}))


def files_of_export(folder: Path) -> set[str]:
    """Return the names of the files of an exported tagger, as its ``tagger.json`` lists them; empty without one."""
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        listed = settings["files"] if settings["format"] == FORMAT else {}
        return {SETTINGS, *(name for name in listed if Path(name).name == name)} if listed else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _quantize(source: Path, target: Path, per_channel: bool) -> None:
    """Write a model with 8-bit matrices, which have one scale, or one for each column."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ModuleNotFoundError:
        raise FlairNasError("onnxruntime is not installed; pip install onnx onnxruntime") from None
    # the root logger: onnxruntime advises a preparation there that a cell's loop does not take
    logger = logging.getLogger()
    level = logger.level
    with tempfile.TemporaryDirectory() as directory:
        copy, result = Path(directory, source.name), Path(directory, "int8.onnx")  # files of its own appear beside
        copy_whole(source, copy)
        logger.setLevel(logging.ERROR)
        try:
            quantize_dynamic(
                copy,
                result,
                weight_type=QuantType.QInt8,
                per_channel=per_channel,
                extra_options={"EnableSubgraph": True},
            )
        except OSError:
            raise
        except Exception as error:  # its own files may be cut short without an error
            problem = f"{source}: cannot be turned into 8 bits ({shown(error)})"
            raise FlairNasError(f"{problem}; if the disk is not full, export without --int8") from None
        finally:
            logger.setLevel(level)
        copy_whole(result, target)
