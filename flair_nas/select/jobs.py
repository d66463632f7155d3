"""What the jobs of all tasks need."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any


def be_quiet() -> None:
    """Lets nothing but errors be said by this process; what was worth a remark, the main process has said."""
    logging.getLogger("flair").setLevel("ERROR")
    logging.getLogger("flair_nas").setLevel("ERROR")


def history_in(folder: Path) -> list[dict[str, Any]]:
    """What a run has written so far, a line an epoch."""
    path = folder / "history.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]
