"""What a selection has done so far: one file, from which it goes on."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, shown
from flair_nas.experiments.config import seconds_of
from flair_nas.experiments.jobs import ProcessDiedError, Outcome
from flair_nas.storage.files import sum_of_data, write_text
from flair_nas.storage.paths import read_file

log = logging.getLogger("flair_nas")

_FORMAT, _VERSION = "flair-nas/selection", 1
_MOST_BYTES = 100_000_000


class Ledger:
    """The plan and the runs of a selection, in ``ledger.json``.

    Args:
        path: the file; it need not be there.

    Attributes:
        plan: what was decided by measured time, and so is not decided again with the same budget.
        rule: the first and keep of the `Rule` that thins candidates out; empty if that is not kept.
        data: the fingerprint of what the runs are on; empty if that is not kept.
        runs: by name: the epochs that a run has come to, its F1 on dev after each, seconds, or its error.

    Raises:
        FlairNasError: the file is damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan: dict[str, Any] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.data = ""
        self.rule: list[float] = []
        self._earlier = 0.0  # seconds, of earlier calls
        self._begun: float | None = None
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            data = json.loads(read_file(self.path, _MOST_BYTES))
            found = (data["format"], data["version"])
            if found == (_FORMAT, _VERSION):
                if data.pop("sha256") != sum_of_data(data):
                    raise ValueError("it has changed")
                self.plan, self.runs, self._earlier = data["plan"], data["runs"], data["seconds"]
                self.data, self.rule = data.get("data", ""), data.get("rule", [])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FlairNasError(
                f"{self.path}: this ledger cannot be read ({error}); give it back, or choose another folder: without "
                "it the time that is spent is not known"
            ) from None
        if found != (_FORMAT, _VERSION):
            raise FlairNasError(
                f"{self.path}: a ledger of {found[0]}, version {found[1]}; this flair-nas reads version {_VERSION}"
            )

    def check(self, fingerprint: str) -> None:
        """Sees to it that all runs are on the same data, and keeps what they are on.

        Raises:
            FlairNasError: they are not.
        """
        if self.data not in ("", fingerprint):
            raise FlairNasError(
                f"{self.path.parent}: its runs are on other data, or their accuracy left out words without a label, as "
                "it once did; choose another folder, or give back what they are on"
            )
        self.data = fingerprint

    @property
    def seconds(self) -> float:
        """That the selection has taken so far, all in all."""
        return self._earlier + (0.0 if self._begun is None else time.perf_counter() - self._begun)

    def note(self, outcome: Outcome) -> bool:
        """Writes down, in the file too, how a job ended; whether it worked.

        Raises:
            OSError: the job's, of the disk, which is the same for all.
        """
        if isinstance(outcome.error, OSError):
            raise outcome.error
        name = outcome.job.name
        if outcome.error is None:
            before = self.runs.get(name, {}).get("peak_memory_mb", 0)
            if "peak_memory_mb" in outcome.result:  # the last job of a run may only have scored it
                outcome.result["peak_memory_mb"] = max(before, outcome.result["peak_memory_mb"])
            self.runs[name] = outcome.result
            self.save()
            return True
        known = isinstance(outcome.error, (FlairNasError, ProcessDiedError))
        error = str(outcome.error) if known else shown(outcome.error)
        log.warning("%s failed: %s", name, error)
        # a loss that is not finite is so again; what else was the matter may be gone at the next call
        self.runs[name] = {"error": error, "again": "not finite" not in error}
        self.save()
        return False

    def begin(self, budget: str) -> None:
        """Begins to count time; forgets what was planned with another budget, and what is to be tried again."""
        self._begun = time.perf_counter()
        before = self.plan.get("budget")
        if before is None or seconds_of(before) != seconds_of(budget):
            self.plan = {"budget": budget}
        self.runs = {name: run for name, run in self.runs.items() if not run.get("again")}

    def save(self) -> None:
        """Writes the file whole or not at all.

        Raises:
            OSError: it cannot be written, or the disk is full.
        """
        data = {"format": _FORMAT, "version": _VERSION, "plan": self.plan, "runs": self.runs, "seconds": self.seconds}
        data |= {"data": self.data} | ({"rule": self.rule} if self.rule else {})
        write_text(self.path, json.dumps(data | {"sha256": sum_of_data(data)}, indent=1) + "\n")
