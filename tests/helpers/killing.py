"""Runs that are killed at random moments and resumed, and what they leave behind, compared to the bit.

What tests and `benchmarks/robustness/kill_and_resume.py` share. A run is a search, unless another function is given
that runs one.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

Work = Callable[[dict[str, Any], str], None]
"""Runs with settings in a folder; it is what the processes do."""


class Killed(NamedTuple):
    """A run that was killed and resumed until it ended."""

    epochs: list[int]  # in the history at each kill
    starts: int  # processes that it took


def write_text(folder: Path, train_lines: int = 80, valid_lines: int = 16, seed: int = 0) -> Path:
    """Lines of five words; each word tells which one follows."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for part, count in (("train", train_lines), ("valid", valid_lines)):
        starts = random.integers(0, 28, count)
        lines = [" ".join(f"word{(start + place) % 28}" for place in range(5)) for start in starts]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


# --- running and killing ---


def processes(*modules: str) -> Any:
    """A server that has imported everything, and these modules, so that its children begin at once."""
    context = multiprocessing.get_context("forkserver")
    # the last three are what is loaded late: with the first gradient, the first optimizer, the picture at the end
    preload = ["flair_nas.search.trainer", "sympy", "torch._dynamo", "matplotlib.figure"]
    context.set_forkserver_preload([*preload, *modules])
    return context


def run_search(settings: dict[str, Any], out: str) -> None:
    """One search."""
    from flair_nas.search.several_config import settings_class
    from flair_nas.search.trainer import search_genotype
    from flair_nas.settings.fields import make_settings

    be_quiet()
    config = make_settings(settings_class(settings.get("objective", "text")), settings)
    search_genotype(config, out, progress=False)


def be_quiet() -> None:
    """One thread, and errors alone in the log, for a process that runs something."""
    import logging

    import torch

    torch.set_num_threads(1)
    for name in ("flair_nas", "flair"):
        logging.getLogger(name).setLevel(logging.ERROR)


def run_whole(context: Any, settings: dict[str, Any], out: Path, work: Work = run_search) -> list[float]:
    """A run that nobody stops; its seconds when each epoch was in the history, and at the end."""
    process = context.Process(target=work, args=(settings, str(out)))
    process.start()
    times: list[float] = []
    spent = 0.0
    while process.is_alive():
        process.join(0.002)
        spent = max(spent, _seconds(process))
        times += [spent] * (_epochs(out) - len(times))
    if process.exitcode:
        raise RuntimeError(f"the run failed with exit code {process.exitcode}")
    return [*times, spent]


def run_killed(
    context: Any, settings: dict[str, Any], out: Path, times: list[float], moments: list[float], work: Work = run_search
) -> Killed:
    """A run that is killed at moments and resumed each time; a moment of 2.3 is three tenths into the third epoch.

    `times` are those of the run that nobody stopped. What comes after the last epoch counts as one more.
    """
    killed: list[int] = []
    for starts, moment in enumerate([*sorted(moments), None], start=1):
        process = context.Process(target=work, args=(settings, str(out)))
        process.start()
        if moment is not None:
            epochs, part = int(moment), moment % 1
            while process.is_alive() and _epochs(out) < epochs:
                process.join(0.002)
            begin = times[epochs - 1] if epochs else 0.0
            wait = part * (times[epochs] - begin)
            end = _seconds(process) + wait
            while process.is_alive() and _seconds(process) < end:
                process.join(0.002)
            process.join(wait % 0.01)  # the system counts in hundredths
            process.kill()
        process.join()
        if process.exitcode == 0:
            return Killed(killed, starts)
        if process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the run failed with exit code {process.exitcode}")
        killed.append(_epochs(out))
    raise RuntimeError("the last process was killed by somebody else")


def draw_moments(epochs: int, kills: int, seed: int) -> list[float]:
    """Moments of a run of some epochs, but for its last fifth, so that the last kill does not come too late."""
    return (np.random.default_rng(seed).random(kills) * 0.8 * epochs).tolist()


def _seconds(process: Any) -> float:
    """What a process has spent on its work so far; 0 when it has ended."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _epochs(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("history.jsonl"))


# --- comparing ---


def contents(out: Path) -> dict[str, Any]:
    """All that a run has left behind, by file, but for pictures and what no two runs have the same."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix != ".svg"]
    return {str(path.relative_to(out)): untimed(_content(path)) for path in paths}


def _content(path: Path) -> Any:
    if path.suffix == ".pt":
        return _state(path)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if path.suffix == ".json" else text


def _state(path: Path) -> Any:
    import torch

    try:
        state = torch.load(path, weights_only=True)
    except pickle.UnpicklingError:  # a tagger or character model of Flair's, with classes in it
        return torch.load(path, weights_only=False)["state_dict"]
    if "corpus_sha256" not in state:  # a tagger's run uses all generators, the others neither seed nor use all
        if isinstance(state.get("random"), list):
            state["random"] = [one["torch"] for one in state["random"]]
        elif "random" in state:
            state["random"] = state["random"]["torch"]
    return state


def untimed(content: Any) -> Any:
    """A content without what no two runs have the same: times, dates, memory, their sums."""
    if isinstance(content, dict):
        return {
            name: untimed(value)
            for name, value in content.items()
            if name not in ("date", "sha256") and not (isinstance(name, str) and ("second" in name or "memory" in name))
        }
    if isinstance(content, (list, tuple)):
        return type(content)(untimed(value) for value in content)
    return content


def differences(left: Any, right: Any, path: str = "") -> Iterator[str]:
    """Where two contents differ, in words."""
    import torch

    if type(left) is not type(right):
        yield f"{path}: {type(left).__name__} and {type(right).__name__}"
    elif isinstance(left, torch.Tensor):
        if left.dtype != right.dtype or left.shape != right.shape:
            yield f"{path}: {left.dtype} {list(left.shape)} and {right.dtype} {list(right.shape)}"
        elif not torch.equal(left, right):
            most = (left.double() - right.double()).abs().max()
            yield f"{path}: {int((left != right).sum())} of {left.numel()} numbers differ, by {most:.3g} at most"
    elif isinstance(left, dict):
        if left.keys() != right.keys():
            yield f"{path}: keys {list(left)} and {list(right)}"
        for name in left.keys() & right.keys():
            yield from differences(left[name], right[name], f"{path}/{name}")
    elif isinstance(left, (list, tuple)):
        if len(left) != len(right):
            yield f"{path}: {len(left)} entries and {len(right)}"
        for number, pair in enumerate(zip(left, right)):
            yield from differences(*pair, f"{path}/{number}")
    elif left != right:
        yield f"{path}: {left!r} and {right!r}"


def tensors(content: Any) -> Iterator[Any]:
    """All tensors of a content."""
    import torch

    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, (dict, list, tuple)):
        for part in content.values() if isinstance(content, dict) else content:
            yield from tensors(part)
