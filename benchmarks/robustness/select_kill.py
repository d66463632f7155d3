"""A selection that is killed (SIGKILL) at random moments and resumed, next to the same one never stopped.

    python -m benchmarks.robustness.select_kill [--kills 10] [--seed 1] [--workers 2] [--ray] [--out FILE]

Both are of the bundled corpus, with so many random cells that no decision is left to measured time. The command's
process is killed after times drawn uniformly up to half of what the whole one took (what it has begun must end by
itself), and started again each time until it ends. Then both must have the same ledger but for seconds and memory, the
same answer, and the same winner's tagger, tensor by tensor, bit for bit. Every difference is printed, and the exit code
is 1 when there is one. --out takes a line of JSON.

With --ray the second one has a Ray cluster of this machine with so many workers, and it is these that are killed, after
times drawn uniformly up to a quarter of what the whole one took, counted from the first checkpoint or the last kill.
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
    "--corpus demo --embeddings one-hot --hidden-size 16 --batch-size 8 --learning-rate 0.3 --epochs 6 --seeds 1,2,3 "
    "--candidates gru tanh0-tanh1 i-darts-ptb --random 2 --budget 9h --device cpu"
)
OF_TIME = ("seconds", "around_seconds", "peak_memory_mb")


def started(arguments: list[str]) -> subprocess.Popen[bytes]:
    """The command, in a group of its own."""
    command = [sys.executable, "-m", "flair_nas", "select", "-q", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def left(out: Path) -> dict[str, Any]:
    """What a selection has left that does not depend on time."""
    import flair_nas  # noqa: F401  # the tagger is one of its layers
    from flair_nas.tagging.prediction import load_tagger

    logging.getLogger("flair").setLevel("ERROR")
    ledger = json.loads((out / "ledger.json").read_text())
    runs = {
        name: {key: value for key, value in run.items() if key not in OF_TIME} for name, run in ledger["runs"].items()
    }
    answer = (out / "report.md").read_text().splitlines()[2]
    weights = {name: weight.numpy().tobytes() for name, weight in load_tagger(out).state_dict().items()}
    return {**{f"run {name}": run for name, run in runs.items()}, "answer": answer, **weights}


def run_killed(out: Path, whole: float, kills: int, seed: int, workers: int) -> int:
    """Kills and resumes until it ends by itself; gives how often it was killed."""
    waits = np.random.default_rng(seed).random(kills) * whole / 2  # the parts that are lost are done again
    done = 0
    for wait in [*waits.tolist(), None]:
        first = [*SETTINGS.split(), "--workers", str(workers), "--out", str(out)]
        begun = (out / "config.yaml").exists()
        process = started(["--resume", str(out)] if begun else first)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(2)  # in which its processes notice
            done += 1
            continue
        if process.returncode:
            raise RuntimeError(f"it failed with exit code {process.returncode}")
        return done
    raise RuntimeError("the last process was killed by somebody else")


def run_on_ray(out: Path, whole: float, kills: int, seed: int, workers: int) -> int:
    """Runs it on a cluster, whose workers are killed; gives how often that was."""
    waits = np.random.default_rng(seed).random(kills) * whole / 4
    process = started([*SETTINGS.split(), "--engine", "ray", "--workers", str(workers), "--out", str(out)])
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
    """Ray's processes that train, of the cluster that a process has started."""
    found = []
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name().startswith("ray::") and "-seed" in " ".join(child.cmdline()):
                found.append(child)
    return found


def sentence(killed: str) -> str:
    """The figures of what was killed, "command" or "workers", in words."""
    (found,) = (line for line in lines_in(RESULTS / "select_kill.jsonl") if line["killed"] == killed)
    different = ", ".join(found["differences"]) or "none"
    return f"{found['runs']} runs, {found['seconds']} s in one go; {found['kills']} kills; differences: {different}."


def main() -> int:
    """Runs both and compares them; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="kill workers of a Ray cluster, not the command")
    parser.add_argument("--out", type=Path, help="file to which a line of JSON is added")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"OMP_NUM_THREADS": "1", "FLAIR_NAS_CACHE": f"{folder}/cache"}
        begin = time.perf_counter()
        process = started([*SETTINGS.split(), "--workers", str(arguments.workers), "--out", f"{folder}/whole"])
        if process.wait():
            raise RuntimeError(f"it failed with exit code {process.returncode}")
        whole = time.perf_counter() - begin
        run = run_on_ray if arguments.ray else run_killed
        kills = run(Path(folder) / "killed", whole, arguments.kills, arguments.seed, arguments.workers)
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
