"""Run folders: opened by one process at a time, with checkpoints from which a stopped run goes on exactly."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import random
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flair_nas.errors import FlairNasError, shown
from flair_nas.files import is_part, whole_file
from flair_nas.settings import read_settings

try:
    import fcntl
except ImportError:  # Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("flair_nas")

LOCK = ".lock"


class RunStopped(KeyboardInterrupt):
    """A run was interrupted (Ctrl-C, SIGTERM); what it needs to go on is on disk. The message says how to go on."""


# --- the folder ---


@contextlib.contextmanager
def open_run(
    out: str | Path, config: Any, *, may_change: Collection[str] = (), quantity: str = "run", command: str | None = None
) -> Iterator[Path]:
    """Keeps a run folder for this process while the block runs. Writing ``config.yaml`` there is the block's work.

    Args:
        out: a folder that is new or empty, or one that holds a run with the same settings in its ``config.yaml``.
        config: the settings, a dataclass of `flair_nas.settings`.
        may_change: names of settings that may differ from those of the run that is there.
        quantity: what errors call the run.
        command: how such a run is started, as ``flair-nas tag train``. If it is given, a Ctrl-C in the block becomes a
            `RunStopped` whose message names the command that goes on.

    Yields:
        The folder.

    Raises:
        FlairNasError: the folder holds something else or other settings, cannot be written to, or is in use by another
            process.
        RunStopped: see `command`.
    """
    out = Path(out)
    _check(out, config, may_change, quantity)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FlairNasError(f"cannot write to the folder {out}: {error.strerror or error}") from None
    with _locked(out):
        _check(out, config, may_change, quantity)  # another process may have been here since
        for path in filter(is_part, out.rglob("*")):  # a killed process could not take them away
            path.unlink(missing_ok=True)
        try:
            yield out
        except KeyboardInterrupt as stop:
            if command is None:
                raise
            again = "run it again"
            if (out / "config.yaml").exists():
                again = f"in this directory, go on with: {command} --resume {shlex.quote(str(out))}"
            raise RunStopped(f"{str(stop) or 'stopped'}; {again}") from None


def _check(out: Path, config: Any, may_change: Collection[str], quantity: str) -> None:
    if out.exists() and not out.is_dir():
        raise FlairNasError(f"{out} is a file; give a folder with --out")
    written = out / "config.yaml"
    if not written.exists():
        if out.exists() and any(path.name != LOCK and not is_part(path) for path in out.iterdir()):
            raise FlairNasError(
                f"{out} exists and is not empty, and holds no {quantity} to go on with; choose another folder"
            )
        return
    try:
        before = dataclasses.asdict(type(config)(**read_settings(written, type(config))))
    except FlairNasError as error:
        raise FlairNasError(f"{out} holds no {quantity} to go on with ({error}); choose another folder") from None
    now = dataclasses.asdict(config)
    differing = [name for name in now if now[name] != before[name] and name not in may_change]
    if differing:
        listed = "; ".join(f"{name} was {before[name]!r} and is now {now[name]!r}" for name in differing)
        raise FlairNasError(f"{out} holds a {quantity} with other settings: {listed}. Choose another folder")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder; the system gives it back when the process ends, in whatever way."""
    path = folder / LOCK
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle, folder)
            if _is_at(path, handle):
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its owner took the file away between our opening and locking it
    try:
        with contextlib.suppress(OSError):  # a full disk: the number is there for the message only
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            log.warning("%s cannot be locked (%s): let no other process use it", folder, error.strerror)
            return
        number = os.read(handle, 20).decode(errors="replace")
        process = f"another process ({number})" if number.isdigit() else "another process"
        raise FlairNasError(
            f"{folder} is in use by {process}; wait until it has ended, or choose another folder"
        ) from None


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


# --- checkpoints ---


class Checkpoints:
    """The last two checkpoints of a run: ``checkpoint.pt`` and, before it, ``checkpoint-previous.pt``.

    Args:
        folder: where they lie; it exists.
    """

    def __init__(self, folder: str | Path) -> None:
        self.newest = Path(folder) / "checkpoint.pt"
        self.previous = Path(folder) / "checkpoint-previous.pt"
        self._newest_is_whole: bool | None = None  # not known yet

    def save(self, state: dict[str, Any]) -> None:
        """Writes the newest checkpoint whole or not at all; the one that was the newest becomes the one before.

        Args:
            state: what `torch.load` reads with `weights_only`: tensors, numbers, text, None, and lists, tuples and
                dictionaries of these.

        Raises:
            OSError: it cannot be written; in plain words when the disk is full. What was there stays as it was.
        """
        with whole_file(self.newest) as temporary:
            torch.save(state, temporary)
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())  # from here on there is little left that can fail
            if self._may_replace_previous():
                with whole_file(self.previous) as second_name:
                    second_name.unlink()
                    try:
                        os.link(self.newest, second_name)
                    except OSError:  # a disk that knows no hard links
                        shutil.copyfile(self.newest, second_name)
        self._newest_is_whole = True

    def load(self) -> dict[str, Any] | None:
        """Reads the newest checkpoint that is whole; a warning says when that is not the newest one.

        Returns:
            What was saved, tensors on the CPU; None when there is no checkpoint.

        Raises:
            FlairNasError: there are checkpoints, and all are damaged.
        """
        faults: list[str] = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
            try:
                state = read_checkpoint(path)
            except FlairNasError as error:
                faults.append(str(error))
                continue
            self._newest_is_whole = path == self.newest
            if path == self.previous:
                log.warning("%s; the one before is used: %s", faults[0] if faults else f"no {self.newest}", path)
            return state
        if faults:
            raise FlairNasError(f"{'; '.join(faults)}. To start over, delete them or choose another folder")
        return None

    def _may_replace_previous(self) -> bool:
        """Whether the newest is there and good, and not the same file as the one before."""
        if not self.newest.exists():
            return False
        if self._newest_is_whole is None:
            try:
                _check_sums(self.newest)
                self._newest_is_whole = True
            except Exception:
                self._newest_is_whole = False
        return self._newest_is_whole and not (self.previous.exists() and self.previous.samefile(self.newest))


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint and checks the sums of all that is in it.

    Returns:
        What was saved, tensors on the CPU.

    Raises:
        FlairNasError: it is cut short or otherwise damaged, or no checkpoint.
    """
    try:
        _check_sums(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"it holds a {type(state).__name__}")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise FlairNasError(f"{path}: this checkpoint cannot be read, it may be cut short ({shown(error)})") from None
    return state


def _check_sums(path: str | Path) -> None:
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()  # torch.load does not look at the sums
    if damaged is not None:
        raise ValueError(f"{damaged} is damaged")


# --- random states ---


def random_state() -> dict[str, Any]:
    """The states of the random generators of torch (CPU and GPUs), Python and NumPy, fit for a checkpoint."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "python": random.getstate(),
        "numpy": (name, torch.tensor(np.asarray(keys, dtype=np.int64)), *rest),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Puts back what `random_state` gave; those of GPUs only where there are as many as there were."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
