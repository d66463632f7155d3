"""Kill a tuning (SIGKILL) at random moments, resume it, and compare it with the same tuning that was never stopped.

    python -m benchmarks.robustness.tune_kill [--kills 10] [--seed 1] [--ray] [--out FILE]

Both are of the bundled corpus, with one worker: with more, the order in which runs end decides what is drawn next. The
budget is large, so no decision depends on it. The waits before the kills are drawn uniformly; their sum is about the
time of the whole tuning. After each kill, the command is started again until it ends. Both must have the same points,
the same ledger but for times and memory, the same answer, and the same tagger, bit for bit. Every difference is
printed, and the exit code is 1 if there is one. --out takes a line of JSON.

With --ray the second one has a Ray cluster of this machine, and its worker is killed. Its waits are drawn uniformly up
to a quarter of the time of the whole one, counted from the first checkpoint or the last kill.
"""

import argparse
import contextlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.json_lines import RESULTS, lines_in, put

SETTINGS = (
    "--corpus demo --embeddings one-hot --vary layer rate dropout --hidden-size 16 --batch-size 8 --epochs 6 "
    "--seeds 1,2,3 --trials 10 --sampler random --budget 9h --device cpu --workers 1"
)
OF_TIME = ("seconds", "around_seconds", "peak_memory_mb", "at", "ratio", "ms")


def started(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start the command, in a group of its own."""
    command = [sys.executable, "-m", "flair_nas", "tune", "-q", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def left(out: Path) -> dict[str, Any]:
    """Return what a tuning has left that does not depend on time."""
    import flair_nas  # noqa: F401  # the tagger is one of its layers
    from flair_nas.tagging.prediction import load_tagger

    logging.getLogger("flair").setLevel("ERROR")
    ledger = json.loads((out / "ledger.json").read_text())
    runs = {
        name: {key: value for key, value in run.items() if key not in OF_TIME} for name, run in ledger["runs"].items()
    }
    answer = (out / "report.md").read_text().splitlines()[2]
    weights = {name: weight.numpy().tobytes() for name, weight in load_tagger(out).state_dict().items()}
    return {
        **{f"run {name}": run for name, run in runs.items()},
        "points": ledger["points"],
        "answer": answer,
        **weights,
    }


def run_killed(out: Path, whole: float, kills: int, seed: int) -> int:
    """Kill and resume a tuning until it ends by itself; return the number of kills."""
    waits = np.random.default_rng(seed).random(kills) * whole * 2 / max(1, kills)
    done = 0
    for wait in [*waits.tolist(), None]:
        begun = (out / "config.yaml").exists()
        process = started(["--resume", str(out)] if begun else [*SETTINGS.split(), "--out", str(out)])
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(2)  # its processes notice
            done += 1
            continue
        if process.returncode:
            raise RuntimeError(f"it failed with exit code {process.returncode}")
        return done
    raise RuntimeError("the last process was killed by somebody else")


def run_on_ray(out: Path, whole: float, kills: int, seed: int) -> int:
    """Run a tuning on a cluster, and kill its worker; return the number of kills."""
    waits = np.random.default_rng(seed).random(kills) * whole / 4
    process = started([*SETTINGS.split(), "--engine", "ray", "--out", str(out)])
    done, since = 0, math.inf  # since the first checkpoint, or the last kill
    while process.poll() is None:
        time.sleep(0.2)
        if math.isinf(since) and list(out.glob("runs/*/seed-*/checkpoint.pt")):
            since = time.perf_counter()
        if done < kills and time.perf_counter() - since > waits[done] and (at_work := workers_of(process.pid)):
            at_work[0].kill()
            done, since = done + 1, time.perf_counter()
    if process.returncode:
        raise RuntimeError(f"it failed with exit code {process.returncode}")
    return done


def workers_of(process: int) -> list[psutil.Process]:
    """Return the processes that train on the Ray cluster of a process."""
    found = []
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name().startswith("ray::") and "-seed" in " ".join(child.cmdline()):
                found.append(child)
    return found


def sentence(killed: str) -> str:
    """Return the figures of a line; `killed` is "command" or "workers"."""
    (found,) = (line for line in lines_in(RESULTS / "tune_kill.jsonl") if line["killed"] == killed)
    different = ", ".join(found["differences"]) or "none"
    whole = f"{found['runs']} trainings and timings, {found['seconds']} s in one go"
    return f"{whole}; {found['kills']} kills; differences: {different}."


def main() -> int:
    """Run both and compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="seed of the waits")
    parser.add_argument("--ray", action="store_true", help="kill the worker of a Ray cluster, not the command")
    parser.add_argument("--out", type=Path, help="file to which a line of JSON is added")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"OMP_NUM_THREADS": "1", "FLAIR_NAS_CACHE": f"{folder}/cache"}
        begin = time.perf_counter()
        process = started([*SETTINGS.split(), "--out", f"{folder}/whole"])
        if process.wait():
            raise RuntimeError(f"it failed with exit code {process.returncode}")
        whole = time.perf_counter() - begin
        run = run_on_ray if arguments.ray else run_killed
        kills = run(Path(folder) / "killed", whole, arguments.kills, arguments.seed)
        expected, found = (left(Path(folder) / name) for name in ("whole", "killed"))
    different = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    runs = sum(name.startswith("run ") for name in expected)
    killed = "workers" if arguments.ray else "command"
    put(
        {"killed": killed, "runs": runs, "seconds": round(whole), "kills": kills, "differences": different},
        arguments.out,
    )
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
