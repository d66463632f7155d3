"""Run folders of searches, language models and taggers. One process at a time has a folder open.

OUT/config.yaml      the settings                OUT/checkpoint.pt    and checkpoint-previous.pt, the one before
OUT/history.jsonl    a line per epoch            OUT/metrics.json     the final figures of a model; not of a search
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from flair_nas.errors import FlairNasError, shown
from flair_nas.runs.checkpoints import Checkpoints, State, is_whole
from flair_nas.runs.folder import check_folder
from flair_nas.settings.resolve import to_yaml
from flair_nas.storage.files import hash_data, is_unfinished, write_text
from flair_nas.storage.folders import locked_folder
from flair_nas.storage.paths import check_regular, read_file, typed, user_path
from flair_nas.version import __version__

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class RunSettings(DataclassInstance, Protocol):
        """A dataclass of settings with a number of epochs."""

        epochs: int


_MAX_BYTES = 100_000_000  # of metrics.json, which has some thousand for each seed

Config = TypeVar("Config", bound="RunSettings")
Restored = TypeVar("Restored")
Figures = dict[str, Any]
"""JSON data by name."""


class RunStopped(KeyboardInterrupt):
    """The interrupt of a run (Ctrl-C, SIGTERM), which can be resumed. The message names the command."""


class Run(Generic[Config]):
    """A run in its folder.

    Args:
        folder: an existing folder, which `open_run` has locked.
        config: the settings, a dataclass with fields of `flair_nas.settings.fields`.
        whole: the run that this one is a part of.
    """

    def __init__(self, folder: Path, config: Config, whole: Run[Config] | None = None) -> None:
        self.folder, self.config, self.whole = folder, config, whole
        self.checkpoints = Checkpoints(folder)
        self.history: list[Figures] = []  # a line per epoch

    def part(self, name: str) -> Run[Config]:
        """Return a part of this run, such as a seed, with its history and checkpoints in a folder below."""
        return Run(self.folder / name, self.config, self)

    def resume(self, restore: Callable[[State], Restored]) -> Restored | None:
        """Read the last good checkpoint, take its history, and let `restore` use the rest. Nothing is written.

        Returns:
            The result of `restore`, which gets the saved state with tensors on the CPU; None without a checkpoint.

        Raises:
            FlairNasError: all checkpoints are damaged, or are of another run. The checkpoints of a run with figures
                are gone. The ``model.pt`` of the best epoch is missing or damaged.
        """
        state, start_over = self.checkpoints.load(), f"To start over, delete {self.folder}"
        newest, previous = self.checkpoints.newest, self.checkpoints.previous.name
        if state is None:
            # a kill can leave one line of history without a checkpoint
            if (self.folder / "metrics.json").exists() or self._count_epochs(0) > 1:
                raise FlairNasError(
                    f"{self.folder}: its checkpoints are gone, so this run cannot go on; what it holds stays. "
                    f"Give {newest.name} back. {start_over}"
                )
            return None
        try:
            self.history = state["history"]
            if [line["epoch"] for line in self.history] != list(range(1, state["epoch"] + 1)):
                raise ValueError("its history is another one")
            restored = restore(state)
        except FlairNasError:
            raise
        except Exception as error:  # the state of another kind of run, or of other sizes
            raise FlairNasError(
                f"{newest}: this checkpoint cannot be read, it and {previous} may be of another run ({shown(error)}). "
                f"{start_over}"
            ) from None
        if state.get("best_epoch") and not is_whole(self.folder / "model.pt"):
            raise FlairNasError(
                f"{self.folder}: model.pt, the best model so far, is missing or damaged; give it back. {start_over}"
            )
        return restored

    def check_same(self, saved: Mapping[str, object], present: Mapping[str, object]) -> None:
        """Refuse to resume if a saved value differs from the present one. Its name stands in the error."""
        for name, value in present.items():
            if saved[name] != value:
                raise FlairNasError(
                    f"{self.folder}: the {name} is another one than when this run began; give it back, or choose "
                    "another folder"
                )

    def accept(self) -> None:
        """Write the settings, and the history of the checkpoint.

        Call it when nothing can refuse the run any more. After an earlier error the folder stays usable. The setting
        `epochs` is raised to the number of epochs that exist.
        """
        config = self.config
        if len(self.history) > config.epochs:
            config = dataclasses.replace(config, epochs=len(self.history))
        write_text((self.whole or self).folder / "config.yaml", to_yaml(config))
        self.folder.mkdir(exist_ok=True)
        if self.history:
            self._write_history()
        else:  # a kill may have left a line that no checkpoint knows
            (self.folder / "history.jsonl").unlink(missing_ok=True)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the history, then a checkpoint with it and `state`. Each file is whole or not written at all."""
        if self.history:
            self._write_history()
        self.checkpoints.save({**state, "history": self.history})

    def finish(self, figures: Mapping[str, Any]) -> Figures:
        """Write the final figures, among them `epochs`. Return them with the version and a checksum (`sha256`)."""
        written = {**figures, "flair_nas": __version__}
        written["sha256"] = hash_data(written)
        write_text(self.folder / "metrics.json", json.dumps(written, indent=2) + "\n")
        return written

    def figures(self, *names: str) -> Figures | None:
        """Read the figures that `finish` wrote. Return None if some are missing, damaged or of earlier epochs."""
        try:
            figures = read_figures(self.folder / "metrics.json")
            is_present = figures["epochs"] == self._count_epochs(figures["epochs"])
            return figures if is_present and figures.keys() >= {*names} else None
        except (OSError, ValueError, KeyError):
            return None

    def _write_history(self) -> None:
        write_text(self.folder / "history.jsonl", "".join(json.dumps(line) + "\n" for line in self.history))

    def _count_epochs(self, otherwise: int) -> int:
        """Count the epochs of the history on disk. Return `otherwise` without that file."""
        try:
            check_regular(self.folder / "history.jsonl")
            return (self.folder / "history.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return otherwise


def read_figures(path: str | Path) -> Figures:
    """Read the file that `Run.finish` wrote. Raise ValueError if it has changed since."""
    figures = json.loads(read_file(path, _MAX_BYTES))
    if not isinstance(figures, dict) or figures.pop("sha256", None) != (checksum := hash_data(figures)):
        raise ValueError("it has changed")
    return {**figures, "sha256": checksum}


@contextlib.contextmanager
def open_run(
    out: str | Path,
    config: Config,
    *,
    may_change: Collection[str] = (),
    quantity: str = "run",
    command: str | None = None,
) -> Iterator[Run[Config]]:
    """Lock a run folder for this process while the block runs. The block must call `Run.accept`.

    `check_folder` explains the arguments. With `command`, such as ``flair-nas tag train``, Ctrl-C in the block raises
    `RunStopped`. Its message names the command that resumes.

    Raises:
        FlairNasError: the folder holds something else or other settings, cannot be written to, or is in use by another
            process.
    """
    out = user_path(out)
    check_folder(out, config, may_change, quantity)
    with locked_folder(out):
        check_folder(out, config, may_change, quantity)  # another process may have written since
        for path in filter(is_unfinished, [*out.glob(".*"), *out.glob("*/.*")]):
            path.unlink(missing_ok=True)
        try:
            yield Run(out, config)
        except KeyboardInterrupt as stop:
            if command is None:
                raise
            is_begun = (out / "config.yaml").exists()
            again = f"in this directory, go on with: {command} --resume {typed(out)}" if is_begun else "run it again"
            raise RunStopped(f"{str(stop) or 'stopped'}; {again}") from None
