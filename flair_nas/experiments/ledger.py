"""The ledger: plan, results and time of many runs, in one file from which they go on."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flair_nas.errors import FlairNasError, shown
from flair_nas.experiments.jobs import Outcome, ProcessDiedError
from flair_nas.runs.duration import parse_time
from flair_nas.storage.files import hash_data, write_text
from flair_nas.storage.paths import read_file
from flair_nas.version import __version__

log = logging.getLogger("flair_nas")

_FORMAT, _VERSION = "flair-nas/tuning", 1
_MAX_BYTES = 100_000_000
KEPT = ("at work", "best", "finalists judged")
"""Entries of the plan that stay with another budget: jobs that were stopped, and results."""

T = TypeVar("T")
Run = dict[str, Any]
"""JSON data of a run, as `TaskModule.train` returns them, or its error."""


class Ledger:
    """Plan, points and runs of a tuning, in ``ledger.json``, which need not exist.

    Raises:
        FlairNasError: the file is damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan: dict[str, Any] = {}  # decisions by measured time, kept while the budget stays
        self.points: list[dict[str, Any]] = []  # in the order in which they were drawn
        self.runs: dict[str, Run] = {}  # by name
        self.data = ""  # fingerprint of the data that runs are trained on
        self._earlier = 0.0  # seconds of earlier calls
        self._begun: float | None = None
        if not path.exists():
            return
        try:
            data = json.loads(read_file(path, _MAX_BYTES))
            if (data["format"], data["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"{data['format']}, version {data['version']}, is not {_FORMAT}, version {_VERSION}")
            if data.pop("sha256") != hash_data(data):
                raise ValueError("it has changed")
            self.plan, self.points, self.runs = data["plan"], data["points"], data["runs"]
            self._earlier, self.data = data["seconds"], data["data"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FlairNasError(
                f"{path}: this ledger cannot be read ({error}). Restore it, or choose another folder"
            ) from None

    @property
    def seconds(self) -> float:
        """Seconds spent in all calls."""
        return self._earlier + (0.0 if self._begun is None else time.perf_counter() - self._begun)

    def begin(self, budget: str) -> None:
        """Start the clock; forget the plan of another budget, and failures to try again.

        Raises:
            FlairNasError: the file is missing beside trainings, so the time spent is unknown.
        """
        trained = self.path.parent / "runs"
        if not self.path.exists() and trained.is_dir() and any(trained.iterdir()):
            raise FlairNasError(
                f"{self.path} is missing, so the time and the results of {trained} are unknown. Restore it, delete "
                f"{trained} to begin anew, or choose another folder"
            )
        self._begun = time.perf_counter()
        before = self.plan.get("budget")
        if before is None or parse_time(before) != parse_time(budget):
            self.plan = {name: self.plan[name] for name in KEPT if name in self.plan} | {"budget": budget}
        again = {name: run.get("before") for name, run in self.runs.items() if run.get("again")}
        self.runs = {name: run for name, run in (self.runs | again).items() if run}

    def check(self, fingerprint: str) -> None:
        """Store the fingerprint of the data that runs are trained on.

        Raises:
            FlairNasError: earlier runs were trained on other data.
        """
        if self.data not in ("", fingerprint):
            raise FlairNasError(
                f"{self.path.parent}: its runs are on other data. Choose another folder, or restore the data"
            )
        self.data = fingerprint

    def decide(self, name: str, choose: Callable[[], T]) -> T:
        """Return a decision of the plan; `choose` makes a new one. `save` keeps it."""
        if name not in self.plan:
            self.plan[name] = choose()
        decision: T = self.plan[name]
        return decision

    def note(self, outcome: Outcome) -> bool:
        """Store the outcome of a job, and save; return True if it worked.

        Raises:
            OSError: the job raised it; a fault of the disk is the same for all jobs.
        """
        if isinstance(outcome.error, OSError):
            raise outcome.error
        name = outcome.job.name
        before, at = self.runs.get(name, {}), self.seconds
        if outcome.error is None:
            run: Run = outcome.result
            if "peak_memory_mb" in run:
                run["peak_memory_mb"] = max(run["peak_memory_mb"], before.get("peak_memory_mb", 0))
            if "dev" in run and run["dev"] == before.get("dev"):  # the job only scored it
                at = before["at"]
        else:
            known = isinstance(outcome.error, (FlairNasError, ProcessDiedError))
            error = str(outcome.error) if known else shown(outcome.error)
            log.warning("%s failed: %s", name, error)
            # a loss that is not finite will be so again; another fault may be gone at the next call
            run = {"error": error, "again": "not finite" not in error, "before": before}
        self.runs[name] = run | {"at": at}
        self.save()
        return outcome.error is None

    def save(self) -> None:
        """Write the file whole or not at all.

        Raises:
            OSError: the file cannot be written, or the disk is full.
        """
        data = {"format": _FORMAT, "version": _VERSION, "plan": self.plan, "points": self.points, "runs": self.runs}
        data |= {"seconds": self.seconds, "data": self.data, "flair_nas": __version__}
        write_text(self.path, json.dumps(data | {"sha256": hash_data(data)}) + "\n")
