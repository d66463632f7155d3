"""Searches that are killed (SIGKILL) at random moments and resumed, next to the same searches never stopped.

    python -m benchmarks.robustness.kill_and_resume [CASE ...] [--kills 10] [--seed 1] [--out FILE]

For each case, a small search on made-up text runs once from beginning to end, and the moments at which its epochs end
are taken. The same search then runs in another folder, where its process is killed at moments drawn uniformly from
its epochs, and started again each time until it ends by itself. (Time is the process' own, so that other work on the
machine changes little.) Both folders must hold the same: history (but for
seconds), genotype, and each tensor of the last two checkpoints (weights, architecture weights, statistics, states of
optimizers and of the random generator), bit for bit. Every difference is printed, and the exit code is 1 when there is
one. --out takes a JSON line per case.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

from killing import contents, differences, draw_moments, processes, run_killed, run_whole, tensors, write_text

RESULTS = Path(__file__).parents[1] / "results" / "kill_and_resume.jsonl"
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
    "evolution": {"strategy": "evolution", "child_steps": [7], "population": 4, "tournament": 2, "epochs": 20},
    "hurdles with gates": {
        "strategy": "evolution",
        "child_steps": [3, 5, 7],
        "hurdle_every": 5,
        "population": 4,
        "tournament": 2,
        "removal": "worst",
        **GATES,
        "epochs": 15,
    },
    "local-search": {"strategy": "local-search", "child_steps": [7], "epochs": 20},
    "enas": {"strategy": "enas", "samples": 30, "controller_steps": 2, "controller_learning_rate": 0.01},
    "several tasks": {"objective": "several"},
    "several tasks, enas": {"objective": "several", "strategy": "enas", "samples": 30, "controller_steps": 2},
    "continual, after another": {"retrain_epochs": 2, "sparsity": 1e-3, "orthogonality": 1e-3},
    "continual, enas": {
        "strategy": "enas", "samples": 30, "controller_steps": 2, "retrain_epochs": 2, "sparsity": 1e-3,
        "orthogonality": 1e-3,
    },
}  # fmt: skip
OF_TASK = ("batch_size", "bptt", "learning_rate", "dropout", "input_dropout", "recurrent_dropout")


# --- the table ---


def measure(context: Any, name: str, text: Path, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """One case."""
    settings = settings_of(context, name, text, folder)
    times = run_whole(context, settings, folder / "whole")
    expected = contents(folder / "whole")
    found: list[str] = []
    for attempt in range(5):  # another one if a search ends by itself before its last kill
        stopped = folder / f"stopped-{attempt}"
        killed = run_killed(context, settings, stopped, times, draw_moments(len(times), kills, seed + 1000 * attempt))
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


def settings_of(context: Any, name: str, text: Path, folder: Path) -> dict[str, Any]:
    """The settings of a case; a continual search comes after one that runs here."""
    settings = {**SEARCH, **CASES[name], "text": str(text)}
    if settings.get("objective") == "several":
        task = {key: settings.pop(key) for key in OF_TASK} | {"text": settings.pop("text")}
        settings["tasks"] = [{**task, "name": "one"}, {**task, "name": "other", "bptt": 6}]
    if "orthogonality" in settings:
        first = {key: value for key, value in settings.items() if key not in ("orthogonality", "sparsity")}
        run_whole(context, first, folder / "first")
        settings["after"] = str(folder / "first")
    return settings


def table() -> str:
    """The kept figures as a table."""
    rows = ["| search | epochs | kills | numbers compared | differences |", "| --- | --- | --- | --- | --- |"]
    for line in RESULTS.read_text().splitlines():
        of = json.loads(line)
        rows.append(f"| {of['case']} | {of['epochs']} | {of['kills']} | {of['numbers']:,} | {len(of['differences'])} |")
    return "\n".join(rows)


def main() -> int:
    """Runs the cases and prints their figures; gives the exit code."""
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
        from benchmarks.speed.product_floor import runnable

        if not runnable(["bfloat16"]):
            cases.remove("bfloat16")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {  # before the server starts
            "OMP_NUM_THREADS": "1",
            "FLAIR_NAS_CACHE": f"{folder}/cache",
            "PYTHONWARNINGS": "ignore:resource_tracker",  # what killed processes leave behind is no news
        }
        context, text = processes(), write_text(Path(folder) / "text")
        for number, name in enumerate(cases):
            path = Path(folder) / str(number)
            rows.append(measure(context, name, text, path, arguments.kills, arguments.seed + number))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.out:
        import torch

        machine = {"torch": torch.__version__, "machine": platform.machine()}
        Path(arguments.out).write_text("".join(json.dumps(row | machine) + "\n" for row in rows))
    return any(row["differences"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
