"""Files of the small wheel: the modules of flair-nas that run exported taggers, as the package `flair_nas_runtime`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path(__file__).resolve().parents[1] / "flair_nas"
OTHERS = ("errors.py", "version.py", "storage/__init__.py", "storage/files.py", "storage/paths.py", "py.typed")
"""Files that `flair_nas/runtime` needs."""


class RenamingHook(BuildHookInterface[Any]):
    """A hook that renames the package in every module."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the renamed modules, and name them to the builder."""
        self.folder = tempfile.TemporaryDirectory()  # until the wheel is built
        files = {f"{file.name}": file for file in (SOURCE / "runtime").glob("*.py")}
        for name, file in (files | {name: SOURCE / name for name in OTHERS}).items():
            renamed = Path(self.folder.name, name)
            renamed.parent.mkdir(exist_ok=True)
            text = file.read_text(encoding="utf-8")
            renamed.write_text(re.sub(r"\bflair_nas\b(\.(onnx|runtime)\b)?", "flair_nas_runtime", text), "utf-8")
            build_data["force_include"][str(renamed)] = f"flair_nas_runtime/{name}"
