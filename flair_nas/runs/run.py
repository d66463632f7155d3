"""Run folders of searches, language models and taggers: opened by one process at a time, and gone on with exactly.

OUT/config.yaml      the settings                OUT/checkpoint.pt    and checkpoint-previous.pt, should it be damaged
OUT/history.jsonl    a line per epoch            OUT/metrics.json     the figures of a model at its end; searches: none
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.runs.checkpoints import START_OVER, Checkpoints, is_whole
from flair_nas.settings.resolve import read_run_settings
from flair_nas.settings.yaml_files import UnknownSettings, to_yaml
from flair_nas.storage.files import is_part, sum_of_data, write_text
from flair_nas.storage.locks import Held, locked
from flair_nas.storage.paths import check_regular, read_file, typed, user_path

log = logging.getLogger("flair_nas")

LOCK = ".lock"
_MOST_BYTES = 100_000_000  # of metrics.json, which has some thousand for each seed
_WRITTEN = (
    *("config.yaml", "history.jsonl", "metrics.json", "model.pt", "checkpoint.pt", "checkpoint-previous.pt"),
    *("genotype.json", "progress.svg", "dev.txt", "test.txt"),
)

Restored = TypeVar("Restored")


class RunStopped(KeyboardInterrupt):
    """A run was interrupted (Ctrl-C, SIGTERM); what it needs to go on is on disk. The message says how to go on."""


class Run:
    """One run in its folder.

    Args:
        folder: it is there, and `open_run` keeps it for this process, or for the one that this one works with.
        config: the settings, a dataclass of `flair_nas.settings.fields` with `epochs`.
        whole: the run of which this is a part.

    Attributes:
        checkpoints: the last two.
        history: a dictionary per epoch, as JSON data.
    """

    def __init__(self, folder: Path, config: Any, whole: Run | None = None) -> None:
        self.folder, self.config, self.whole = folder, config, whole
        self.checkpoints = Checkpoints(folder)
        self.history: list[dict[str, Any]] = []

    def part(self, name: str) -> Run:
        """A part with a history and checkpoints of its own, such as one seed of several, in a folder below this one."""
        return Run(self.folder / name, self.config, self)

    def resume(self, restore: Callable[[dict[str, Any]], Restored], start_over: str = START_OVER) -> Restored | None:
        """Reads the last good checkpoint, takes its history, and has the rest put in place; nothing is written.

        Args:
            restore: puts in place what was saved, tensors on the CPU, or refuses it.
            start_over: what to do when the checkpoints cannot be used, for the error.

        Returns:
            What `restore` gives; None when there is no checkpoint.

        Raises:
            FlairNasError: all checkpoints are damaged, or of another run, or refused; or the ``model.pt`` of the best
                epoch is missing or damaged.
        """
        state = self.checkpoints.load(start_over)
        if state is None:
            return None
        newest, previous = self.checkpoints.newest, self.checkpoints.previous.name
        self.history = state.get("history", [])
        try:
            if [line["epoch"] for line in self.history] != list(range(1, state["epoch"] + 1)):
                raise ValueError("its history is another one")
            restored = restore(state)
        except FlairNasError:
            raise
        except Exception as error:  # of another kind of run, or of other sizes
            raise FlairNasError(
                f"{newest}: this checkpoint cannot be read, it and {previous} may be of another run ({shown(error)}). "
                f"{start_over}"
            ) from None
        if state.get("best_epoch") and not is_whole(self.folder / "model.pt"):
            raise FlairNasError(
                f"{self.folder}: model.pt, the best model so far, is missing or damaged; give it back, or delete "
                f"{newest.name} and {previous} to start over"
            )
        return restored

    def accept(self) -> None:
        """Makes the folder that of these settings, and its history that of the checkpoint.

        Called when nothing can refuse the run any more, so that a mistake leaves a folder that can be used. The epochs
        that are written are not fewer than there are.
        """
        config = self.config
        if len(self.history) > getattr(config, "epochs", len(self.history)):
            config = dataclasses.replace(config, epochs=len(self.history))
        write_text((self.whole or self).folder / "config.yaml", to_yaml(config))
        self.folder.mkdir(exist_ok=True)
        if self.history:
            self._write_history()
        else:  # it begins anew, and what is there is of another run
            for name in ("history.jsonl", "metrics.json"):
                (self.folder / name).unlink(missing_ok=True)

    def save(self, state: Mapping[str, Any]) -> None:
        """Writes the history, if any, then a checkpoint of it and of `state`, each whole or not at all.

        Args:
            state: as for `Checkpoints.save`.

        Raises:
            OSError: as `Checkpoints.save`.
        """
        if self.history:
            self._write_history()
        self.checkpoints.save({**state, "history": self.history})

    def finish(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the figures of a run that has come to its end; those that `figures` is asked for have `epochs`.

        Returns:
            What is written: the figures, and their sum as `sha256`.
        """
        written = {**figures, "sha256": _sum_of(figures)}
        write_text(self.folder / "metrics.json", json.dumps(written, indent=2) + "\n")
        return written

    def figures(self, *names: str) -> dict[str, Any] | None:
        """What `finish` wrote; None if it did not, if it is damaged, or if epochs have been added since.

        Args:
            names: what has to be among them.
        """
        try:
            found = read_figures(self.folder / "metrics.json")
            _ = [found[name] for name in names]
            return found if found["epochs"] == self._epochs(found["epochs"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_finished(self, epochs: int | None, early: bool = False) -> bool:
        """Whether nothing is left to do.

        Args:
            epochs: after how many it came to its end; None if it has not.
            early: it ended by itself, and would with more epochs.
        """
        return epochs is not None and (early or epochs >= self.config.epochs)

    def _write_history(self) -> None:
        write_text(self.folder / "history.jsonl", "".join(json.dumps(line) + "\n" for line in self.history))

    def _epochs(self, otherwise: int) -> int:
        """How many are in the history on disk."""
        try:
            check_regular(self.folder / "history.jsonl")
            return (self.folder / "history.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return otherwise


def _sum_of(figures: Mapping[str, Any]) -> str:
    """The SHA-256 of figures, but for the sum that may be among them."""
    return sum_of_data({name: value for name, value in figures.items() if name != "sha256"})


def read_figures(path: str | Path) -> dict[str, Any]:
    """Reads what `Run.finish` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged: no JSON, or with another sum (older versions wrote none).
    """
    try:
        found = json.loads(read_file(path, _MOST_BYTES))
    except RecursionError:
        raise ValueError("lists in lists, too deep") from None
    if not isinstance(found, dict) or found.get("sha256", _sum_of(found)) != _sum_of(found):
        raise ValueError("it has changed")
    return found


@contextlib.contextmanager
def open_run(
    out: str | Path, config: Any, *, may_change: Collection[str] = (), quantity: str = "run", command: str | None = None
) -> Iterator[Run]:
    """Keeps a run folder for this process while the block runs. Accepting the run is the block's work.

    Args:
        out: a folder that is new or empty, or one that holds a run with the same settings in its ``config.yaml``.
        config: the settings, a dataclass of `flair_nas.settings.fields`.
        may_change: names of settings that may differ from those of the run that is there.
        quantity: what errors call the run.
        command: how such a run is started, as ``flair-nas tag train``. If it is given, a Ctrl-C in the block becomes a
            `RunStopped` whose message names the command that goes on.

    Yields:
        The run.

    Raises:
        FlairNasError: the folder holds something else or other settings, cannot be written to, or is in use by another
            process.
        RunStopped: see `command`.
    """
    out = user_path(out)
    _check(out, config, may_change, quantity)
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FlairNasError(f"cannot write to the folder {out}: {error.strerror or error}") from None
    with contextlib.ExitStack() as stack:
        if is_new:
            stack.callback(_remove_empty, out)  # a run that refuses its data leaves nothing behind
        stack.enter_context(_kept(out))
        _check(out, config, may_change, quantity)  # another process may have been here since
        for path in [*out.glob(".*.part"), *out.glob("*/.*.part")]:  # a killed process could not take them away
            if is_part(path, _WRITTEN):
                path.unlink(missing_ok=True)
        try:
            yield Run(out, config)
        except KeyboardInterrupt as stop:
            if command is None:
                raise
            again = "run it again"
            if (out / "config.yaml").exists():
                again = f"in this directory, go on with: {command} --resume {typed(out)}"
            raise RunStopped(f"{str(stop) or 'stopped'}; {again}") from None


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it is not empty, as a rule
        folder.rmdir()


def _check(out: Path, config: Any, may_change: Collection[str], quantity: str) -> None:
    if out.exists() and not out.is_dir():
        raise FlairNasError(f"{out} is a file; give a folder with --out")
    written = out / "config.yaml"
    # Another process may be writing. The folder is listed first: what a run wrote since has its config.yaml beside it.
    there = list(out.iterdir()) if out.exists() else []
    others = [path for path in there if path.name != LOCK and not is_part(path, _WRITTEN)]
    if not written.exists():
        if any(os.path.lexists(path) for path in others):
            raise FlairNasError(
                f"{out} exists and is not empty, and holds no {quantity} to go on with; choose another folder"
            )
        return
    try:
        before = dataclasses.asdict(read_run_settings(written, type(config)))
    except UnknownSettings:
        raise FlairNasError(
            f"{out} holds no {quantity} to go on with, but one of another kind (its config.yaml has other settings); "
            "choose another folder"
        ) from None
    except FlairNasError as error:
        raise FlairNasError(f"{out} holds no {quantity} to go on with ({error}); choose another folder") from None
    now = dataclasses.asdict(config)
    differing = [name for name in now if now[name] != before[name] and name not in may_change]
    if differing:
        listed = "; ".join(f"{name} was {brief(before[name])} and is now {brief(now[name])}" for name in differing)
        raise FlairNasError(f"{out} holds a {quantity} with other settings: {listed}. Choose another folder")


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Keeps a folder from other processes."""
    with contextlib.ExitStack() as stack:
        try:
            fault = stack.enter_context(locked(folder / LOCK))
        except Held as other:
            raise FlairNasError(
                f"{folder} is in use by {other}; wait until it has ended, or choose another folder"
            ) from None
        if fault is not None:
            log.warning("%s cannot be locked (%s): let no other process use it", folder, fault.strerror)
        yield
