"""Searches that are killed at random moments and resumed, and what they leave behind, compared to the bit.

What tests and `benchmarks/kill_and_resume.py` share.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

SECONDS = ("seconds", "cpu_seconds", "evaluation_seconds")  # no two runs have the same


class Killed(NamedTuple):
    """A search that was killed and resumed until it ended.

    Args:
        epochs: at each kill, how many epochs were in the history.
        starts: processes that it took.
    """

    epochs: list[int]
    starts: int


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


def processes() -> Any:
    """A server that has imported everything, and whose children therefore begin to search at once."""
    context = multiprocessing.get_context("forkserver")
    # the last three are what is loaded late: with the first gradient, the first optimizer, the picture at the end
    context.set_forkserver_preload(["flair_nas.search.trainer", "sympy", "torch._dynamo", "matplotlib.figure"])
    return context


def run_search(settings: dict[str, Any], out: str) -> None:
    """One search; this is what the processes do."""
    import logging

    import torch

    from flair_nas.search.config import SearchConfig
    from flair_nas.search.trainer import search_genotype

    torch.set_num_threads(1)
    logging.getLogger("flair_nas").setLevel(logging.ERROR)
    search_genotype(SearchConfig(**settings), out, progress=False)


def run_whole(context: Any, settings: dict[str, Any], out: Path) -> list[float]:
    """A search that nobody stops; its seconds when each epoch was in the history, and at the end."""
    process = context.Process(target=run_search, args=(settings, str(out)))
    process.start()
    times: list[float] = []
    spent = 0.0
    while process.is_alive():
        process.join(0.002)
        spent = max(spent, _seconds(process))
        times += [spent] * (_epochs(out) - len(times))
    if process.exitcode:
        raise RuntimeError(f"the search failed with exit code {process.exitcode}")
    return [*times, spent]


def run_killed(context: Any, settings: dict[str, Any], out: Path, times: list[float], moments: list[float]) -> Killed:
    """A search that is killed at moments of the run whose epochs ended at `times`, and resumed each time."""
    killed: list[int] = []
    for starts, moment in enumerate([*sorted(moments), None], start=1):
        process = context.Process(target=run_search, args=(settings, str(out)))
        process.start()
        if moment is not None:
            epochs = sum(end <= moment for end in times[:-1])
            while process.is_alive() and _epochs(out) < epochs:
                process.join(0.002)
            end = _seconds(process) + moment - (times[epochs - 1] if epochs else 0.0)
            while process.is_alive() and _seconds(process) < end:
                process.join(0.002)
            process.join(moment % 0.01)  # the system counts in hundredths
            process.kill()
        process.join()
        if process.exitcode == 0:
            return Killed(killed, starts)
        if process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the search failed with exit code {process.exitcode}")
        killed.append(_epochs(out))
    raise RuntimeError("the last process was killed by somebody else")


def draw_moments(times: list[float], kills: int, seed: int) -> list[float]:
    """Moments of a run, but for its last tenth, so that the last kill does not come too late."""
    return (np.random.default_rng(seed).random(kills) * 0.9 * times[-1]).tolist()


def _seconds(process: Any) -> float:
    """What a process has spent on its work so far; 0 when it has ended."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _epochs(out: Path) -> int:
    try:
        return (out / "history.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


# --- comparing ---


def contents(out: Path) -> dict[str, Any]:
    """All that a search has left behind, but for times, dates, and generators that it neither seeds nor uses."""
    import torch

    found: dict[str, Any] = {"history.jsonl": [json.loads(line) for line in (out / "history.jsonl").open()]}
    histories = [found["history.jsonl"]]
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        found[name] = torch.load(out / name, weights_only=True)
        found[name]["random"] = [state["torch"] for state in found[name]["random"]]
        histories.append(found[name]["history"])
    for line in sum(histories, []):
        for name in SECONDS:
            del line[name]
    found["genotype.json"] = json.loads((out / "genotype.json").read_text())
    del found["genotype.json"]["origin"]["date"], found["genotype.json"]["origin"]["figures"]["seconds"]
    found["config.yaml"] = (out / "config.yaml").read_text()
    return found


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
