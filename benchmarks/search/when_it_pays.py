"""When does a search pay? Eight trainings by what is known of cells against 64 random ones, on texts of no table.

    OMP_NUM_THREADS=1 python -m benchmarks.search.when_it_pays run TEXT ...    # files of a sentence a line
    python -m benchmarks.search.when_it_pays table

A candidate is a cell of 8 nodes with the sizes and 160 steps of the small space. The last twentieth of a text is its
valid part. Each strategy searches three times, and fresh seeds train what each search found. A call goes on.

Written before the runs. The claim: a search by the predictor with eight trainings finds cells as good as the best of 64
random ones, at an eighth of the cost. It is refuted if on the mean of the texts the cells that it found have a higher
loss than those, by more than 0.005 nats. "What is known pays" is refuted if eight random trainings find as good cells.
"""

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.json_lines import RESULTS, as_table, lines_so_far, put
from benchmarks.search.arena import limited
from benchmarks.search.small_space import SETTINGS, STEPS, trainings
from flair_nas.genotype import Genotype
from flair_nas.search.config import SearchConfig
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings

FILE = RESULTS / "when_it_pays.jsonl"
SEARCHES: dict[str, tuple[int, dict[str, Any]]] = {
    "predictor, known from the start": (8, {"strategy": "predictor"}),
    "random": (8, {"strategy": "random-independent", "samples": 8}),
    "random, 64": (64, {"strategy": "random-independent", "samples": 64}),
    "predictor, 16": (16, {"strategy": "predictor"}),
    "predictor, nothing known": (16, {"strategy": "predictor", "prior": "none"}),
    "local search": (16, {"strategy": "local-search"}),
}
"""Trainings and settings of each strategy."""
JUDGES = (11, 12, 13)
NAMED = {"small-relu-tanh": "relu0-tanh1", "tanh0": "tanh0"}


def split(text: Path, folder: Path) -> str:
    """Write a text as a folder with a valid part."""
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    held = len(lines) // 20
    (folder / "train.txt").write_text("".join(lines[:-held]), encoding="utf-8")
    (folder / "valid.txt").write_text("".join(lines[-held:]), encoding="utf-8")
    return str(folder)


def run(texts: list[Path]) -> None:
    """Search on each text, and judge what was found."""
    torch.set_num_threads(1)
    done = lines_so_far(FILE)
    for text in texts:
        with tempfile.TemporaryDirectory() as folder:
            path = split(text, Path(folder))
            cells = set(NAMED.values())
            for name, (count, strategy) in SEARCHES.items():
                for seed in (1, 2, 3):
                    known = {"text": text.stem, "name": name, "seed": seed}
                    line = next((line for line in done if known.items() <= line.items()), None)
                    if line is None:
                        line = known | search(path, seed, count, strategy)
                        put(line, FILE)
                    cells.add(line["found"])
            for cell in sorted(cells):
                for judge in JUDGES:
                    known = {"text": text.stem, "cell": cell, "judge": judge}
                    if not any(known.items() <= line.items() for line in done):
                        (line,) = trainings(path, judge, "full", [Genotype.parse(cell)])
                        put(known | {"loss": line["costs"][-1], "cpu_seconds": line["seconds"]}, FILE)


def search(text: str, seed: int, count: int, strategy: dict[str, Any]) -> dict[str, Any]:
    """Search with so many trainings; an epoch of the search is a training."""
    own = {"text": text, "seed": seed, "nodes": 8, "epochs": count}
    sizes = {name: value for name, value in SETTINGS.items() if name not in ("strategy", "samples", "nodes", "epochs")}
    child = {} if "samples" in strategy else {"child_steps": [STEPS]}
    config = make_settings(SearchConfig, {**sizes, **own, **strategy, **child})
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = search_genotype(config, Path(folder) / "run", objective=limited(config, STEPS), progress=False)
    return {"found": found.genotype.one_line(), "seconds": time.process_time() - start}


def table() -> str:
    """Return the losses of what was found as Markdown, in nats a word above those of the best row of each text."""
    lines = lines_so_far(FILE)
    texts = list(dict.fromkeys(line["text"] for line in lines))
    losses = {
        (line["text"], line["cell"]): statistics.mean(
            other["loss"] for other in lines if (other["text"], other.get("cell")) == (line["text"], line["cell"])
        )
        for line in lines
        if "cell" in line
    }
    rows = [["found by", "trainings", "CPU s", *texts]]
    for name in SEARCHES:
        own = [line for line in lines if line.get("name") == name]
        cells = [
            [losses.get((text, line["found"]), math.nan) for line in own if line["text"] == text] for text in texts
        ]
        seconds = statistics.mean(line["seconds"] for line in own)
        rows.append([name, str(SEARCHES[name][0]), f"{seconds:.0f}", *map(_three, cells)])
    for name, cell in NAMED.items():
        rows.append([f"`{name}`", "-", "-", *(_three([losses[text, cell]]) for text in texts)])
    return as_table(rows)


def _three(values: list[float]) -> str:
    """Return mean and deviation with three decimals."""
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def main() -> None:
    """Run the searches, or show what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    parts.add_parser("run").add_argument("texts", type=Path, nargs="+", metavar="TEXT")
    parts.add_parser("table")
    arguments = parser.parse_args()
    if arguments.part == "run":
        run(arguments.texts)
    print(table())


if __name__ == "__main__":
    main()
