"""Searches that are killed (SIGKILL) at random moments and resumed, next to the same searches never stopped.

    python benchmarks/kill_and_resume.py [CASE ...] [--kills 10] [--seed 1] [--out FILE]

For each case, a small search on made-up text runs once from beginning to end, and the moments at which its epochs end
are taken. The same search then runs in another folder, where its process is killed at moments drawn uniformly from
that time, and started again each time until it ends by itself. (Time is the process' own, so that other work on the
machine changes little.) Both folders must hold the same: history (but for
seconds), genotype, and each tensor of the last two checkpoints (weights, architecture weights, statistics, states of
optimizers and of the random generator), bit for bit. Every difference is printed, and the exit code is 1 when there is
one. --out takes a JSON line per case.
"""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

SEARCH: dict[str, Any] = {
    "nodes": 3,
    "hidden_size": 8,
    "batch_size": 4,
    "bptt": 8,
    "epochs": 6,
    "learning_rate": 2.0,
    "dropout": 0.3,
    "input_dropout": 0.2,
    "recurrent_dropout": 0.2,
    "device": "cpu",
}
GATES = {"learn": "joint", "history": 2}
JOINT = {**GATES, "phase_steps": 7}
CASES: dict[str, dict[str, Any]] = {
    "i-darts, first order": {},
    "i-darts, second order": {"order": 2},
    "darts, first order": {"relaxation": "darts"},
    "darts, second order": {"relaxation": "darts", "order": 2},
    "joint with gates, first order": JOINT,
    "joint with gates, second order": {**JOINT, "order": 2},
    "joint with gates, until it has settled": {**JOINT, "convergence": 0.05, "convergence_steps": 3, "epochs": 8},
    "gates around a fixed cell": {"learn": "inter", "history": 2, "fixed": "relu0-tanh1"},
    "cell with fixed gates": {"fixed": "relu0-tanh1/state=tanh-relu+tanh1/input=tanh-relu"},
    "cosine schedule, two parts": {"schedule": "cosine", "parts": 2},
    "bfloat16": {"precision": "bfloat16"},
    "random-shared": {"strategy": "random-shared", "samples": 200, "sample_segments": 5, "epochs": 8},
    "random-independent": {"strategy": "random-independent", "samples": 7, "epochs": 20},
    "random-shared with gates": {"strategy": "random-shared", "samples": 30, **GATES, "epochs": 15},
    "random-independent with gates": {"strategy": "random-independent", "samples": 7, **GATES, "epochs": 15},
}
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


# --- the table ---


def measure(context: Any, name: str, text: Path, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """One case."""
    settings = {**SEARCH, **CASES[name], "text": str(text)}
    times = run_whole(context, settings, folder / "whole")
    expected = contents(folder / "whole")
    found: list[str] = []
    for attempt in range(5):  # another one if a search ends by itself before its last kill
        stopped = folder / f"stopped-{attempt}"
        killed = run_killed(context, settings, stopped, times, draw_moments(times, kills, seed + 1000 * attempt))
        found += differences(expected, contents(stopped))
        if len(killed.epochs) == kills:
            break
    compared = [tensor.numel() for tensor in tensors(expected)]
    return {
        "case": name,
        "epochs": len(times) - 1,
        "seconds": round(times[-1], 2),
        "kills": len(killed.epochs),
        "epochs_at_kills": killed.epochs,
        "tensors": len(compared),
        "numbers": sum(compared),
        "differences": found,
        "genotype": expected["history.jsonl"][-1]["genotype"],
    }


def main(show: Callable[[str], None] = print) -> int:
    """Runs the cases and prints the table; gives the exit code."""
    parser = argparse.ArgumentParser(description="Kill and resume searches; compare them with searches never stopped.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--kills", type=int, default=10, help="how often each search is killed (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--out", help="file for figures, a JSON line per case")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    cases = arguments.cases or [*CASES]
    if "bfloat16" in cases:
        from product_floor import runnable

        if not runnable(["bfloat16"]):
            cases.remove("bfloat16")
    rows = []
    show("| search | epochs | seconds | kills | after epochs | tensors compared | numbers in them | differences |")
    show("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {  # before the server starts
            "OMP_NUM_THREADS": "1",
            "FLAIR_NAS_CACHE": f"{folder}/cache",
            "PYTHONWARNINGS": "ignore:resource_tracker",  # what killed processes leave behind is no news
        }
        context, text = processes(), write_text(Path(folder) / "text")
        for number, name in enumerate(cases):
            path = Path(folder) / str(number)
            row = measure(context, name, text, path, arguments.kills, arguments.seed + number)
            rows.append(row)
            after = " ".join(map(str, row["epochs_at_kills"]))
            show(
                f"| {name} | {row['epochs']} | {row['seconds']:.1f} | {row['kills']} | {after} | {row['tensors']} | "
                f"{row['numbers']:,} | {len(row['differences']) or 'none'} |"
            )
            for line in row["differences"]:
                show(f"  {line}")
    if arguments.out:
        import torch

        machine = {"torch": torch.__version__, "machine": platform.machine()}
        Path(arguments.out).write_text("".join(json.dumps(row | machine) + "\n" for row in rows))
    return any(row["differences"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
