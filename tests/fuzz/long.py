"""The long form of the fuzz tests: rounds of all of them, each with a seed of its own, until the time is spent.

    python tests/fuzz/long.py [--minutes 60] [--seed 1] [--out runs/fuzz.jsonl]

A round has several times the examples of the short form, and the next seed. After each it prints how many examples have
been run by now, by kind, and what was found. For each failure it prints what gives it again: the command with the
round's seed, and the line that hypothesis wants above the test to run the very example. --out takes them too, with what
the test said, a JSON line each. The exit code is 1 when there is one. Ctrl-C ends it with the summary.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def command(seed: int, *words: str) -> list[str]:
    """Runs tests as a round with that seed does."""
    return [sys.executable, "-m", "pytest", "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *words]


def run_round(seed: int, end: float, first: bool) -> dict[str, Any]:
    """One round, as `conftest.py` reports it; a process that ended without a report is a failure as well.

    It is stopped at `end`. The first one has also those tests whose cases are always the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, output = Path(folder) / "report.json", Path(folder) / "output.txt"
        which = [] if first else ["-m", "hypothesis"]
        words = ["-v", "--tb=short", "-p", "no:cacheprovider", f"--fuzz-report={report}", *which, str(HERE)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command(seed, *words), cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT
            )
            stopped = False
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
                stopped = isinstance(stop, KeyboardInterrupt)
                end_gently(process)
        if report.exists():
            return {**json.loads(report.read_text(encoding="utf-8")), "stopped": stopped}
        shown = output.read_text(encoding="utf-8", errors="replace")[-5000:]
        crash = {"test": "tests/fuzz", "blob": "", "shown": f"the process ended with {process.returncode}\n{shown}"}
        return {"tries": {}, "found": [crash], "stopped": stopped}


def end_gently(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a round; more than once, since a command that is tried takes a Ctrl-C for its own."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(10)
            return
    process.kill()
    process.wait()


def main() -> int:
    """Runs rounds and prints what they find; gives the exit code."""
    parser = argparse.ArgumentParser(description="Fuzz everything that reads, until the time is spent.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each has the next one (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz.jsonl"), help="file for failures, a JSON line each")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes
    tries: Counter[str] = Counter()
    failures, seed, stopped = 0, arguments.seed, False
    with arguments.out.open("w", encoding="utf-8") as out:
        while not stopped and time.monotonic() < end:
            done = run_round(seed, end, first=seed == arguments.seed)
            tries.update(done["tries"])
            for found in done["found"]:
                again = shlex.join(["python", *command(seed, found["test"])[1:]])
                out.write(json.dumps({"seed": seed, "again": again, **found}) + "\n")
                print(f"FAILED {found['test']}\n  again: {again}", flush=True)
                if found["blob"]:
                    print(f"  above the test: {found['blob']}", flush=True)
            out.flush()
            failures += len(done["found"])
            listed = "\n".join(f"  {count:>9,} {kind}" for kind, count in sorted(tries.items()))
            print(f"seed {seed}: {tries.total():,} examples so far, {failures} failures\n{listed}", flush=True)
            stopped = done["stopped"]
            seed += 1
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
