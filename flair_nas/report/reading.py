"""Run folders as a report reads them: finished, running, or interrupted at any instant."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief, listed
from flair_nas.runs.run import read_figures
from flair_nas.settings.resolve import find_command, read_mapping
from flair_nas.storage.paths import read_file, typed, user_path

JSON = dict[str, Any]

_MAX_BYTES = 500_000_000  # of a history


@dataclass(frozen=True)
class RunFolder:
    """A run folder and its contents.

    Args:
        folder: its path.
        name: a unique name in the report.
        kind: the command that wrote it, such as ``search``.
        settings: contents of ``config.yaml``.
        histories: lines of each ``history.jsonl`` by folder: a seed, a direction, or "" for the run's own folder.
        figures: contents of ``metrics.json``; empty without that file.
        calibration: contents of ``calibration.json``; empty without that file.
        remarks: a sentence for each file that is damaged, or not there yet.
    """

    folder: Path
    name: str
    kind: str
    settings: JSON
    histories: dict[str, list[JSON]] = field(default_factory=dict)
    figures: JSON = field(default_factory=dict)
    calibration: JSON = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def history(self) -> list[JSON]:
        """The history of the run's own folder."""
        return self.histories.get("", [])


def read_runs(paths: Sequence[str]) -> list[RunFolder]:
    """Read run folders, each once.

    Raises:
        FlairNasError: a path holds no run that a report can show.
        OSError: a file cannot be read.
    """
    folders: dict[Path, Path] = {}
    for path in map(user_path, paths):
        if not path.exists():
            raise FlairNasError(f"{brief(str(path))}: there is no such folder")
        folder = path.parent if path.is_file() else path
        folders[folder.resolve()] = folder
    names = [whole.name for whole in folders]
    return [_read(f, name if names.count(name) == 1 else str(f)) for f, name in zip(folders.values(), names)]


def _read(folder: Path, name: str) -> RunFolder:
    kind = find_command(folder) if (folder / "config.yaml").exists() else ""
    if not kind:
        above = folder.resolve().parent
        hint = f"; its run may be {typed(above)}" if (above / "config.yaml").exists() else ""
        raise FlairNasError(
            f"{folder} holds no run (no config.yaml with the settings of one){hint}. Give the --out folder of search, "
            "tune, lm train, charlm train or tag train"
        )
    run = RunFolder(folder, name, kind, read_mapping(folder / "config.yaml"))
    for path in sorted([*folder.glob("history.jsonl"), *folder.glob("*/history.jsonl")]):
        part = "" if path.parent == folder else path.parent.name
        run.histories[part] = read_history(path, run.remarks)
    files = {"metrics.json": (run.figures, "final figures are")}
    files["calibration.json"] = run.calibration, "reliability of scores is"
    for file, (figures, title) in files.items():
        if (folder / file).exists():
            try:
                figures.update(read_figures(folder / file))
            except (OSError, ValueError):
                run.remarks.append(f"{file} is damaged, so the {title} missing.")
    return run


def read_history(path: Path, remarks: list[str]) -> list[JSON]:
    """Read the whole lines of a history. Add a remark on damaged ones, which a kill or a full disk can leave."""
    lines, damaged = [], []
    for number, text in enumerate(read_file(path, _MAX_BYTES).split(b"\n"), start=1):
        if text.strip():
            with contextlib.suppress(ValueError, RecursionError):
                line = json.loads(text)
                if isinstance(line, dict) and isinstance(line.get("epoch"), int):
                    lines.append(line)
                    continue
            damaged.append(str(number))
    if damaged:
        remarks.append(f"Damaged lines of {path.parent.name}/history.jsonl are left out: {listed(damaged)}.")
    return lines


def list_settings(settings: JSON) -> list[tuple[str, str]]:
    """Return settings or figures as rows of name and text, without checksums. Nested ones have a longer name."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += [(f"{name} {inner}", text) for inner, text in list_settings(value)]
        elif not any(word in name for word in ("sha256", "fingerprint")):
            rows.append((name, f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)))
    return rows
