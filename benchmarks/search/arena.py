"""The arena: every strategy of search on the small space, where the best cell is known.

    python -m benchmarks.search.arena tabular --out FILE            # strategies that look up losses: a minute or two
    python -m benchmarks.search.arena one-shot --text DIR --out FILE  # those that train a supernet: 40 CPU s a search
    python -m benchmarks.search.arena table FILE ...                # the figures as Markdown, and the comparison
    python -m benchmarks.search.arena picture FILE ... --to FILE.svg
    python -m benchmarks.search.arena runs --to FOLDER              # three searches as run folders, for a report

A budget of k allows what k full trainings of a cell cost. A search of the first kind sees the losses of one seed of the
table, and the mean over the other seeds judges what it found. One of the second kind trains its supernet on the text of
the table, with the table's sizes, for the CPU seconds that k trainings take here; all seeds judge it. Rank is the share
of the cells that are better (0 is the best), regret how much better the best one is, in nats a word. `random` draws k
cells and trains each. JSON lines are added to FILE; what it has is not done again.
"""

import argparse
import bisect
import functools
import itertools
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from scipy.stats import ttest_rel

from benchmarks.json_lines import RESULTS, append, as_p, as_table, holm, lines_so_far, put
from benchmarks.search.prior import make_prior
from benchmarks.search.small_space import SETTINGS, STAGES, SmallSpace, TableObjective, all_cells, trainings
from benchmarks.tables.showing import draw_comparison
from flair_nas.genotype import Genotype
from flair_nas.library.cost_model import CostModel
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives.text import TextObjective, build, read
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings

FILE = RESULTS / "arena.jsonl"
BUDGETS = (8, 16, 32, 64)
CHILD = {"child_steps": [STAGES]}  # a step of a search on a table is a stage of the training
TABULAR: dict[str, Callable[[int], dict[str, Any]]] = {
    "random": lambda k: {"strategy": "random-independent", "samples": k},
    "halving": lambda k: {"strategy": "random-independent", "samples": 8 * k // 3 // 4 * 4, "rungs": 3},
    "evolution": lambda k: {"strategy": "evolution", **CHILD, "population": 8, "tournament": 3},
    "evolution, worst out": lambda k: {
        "strategy": "evolution", **CHILD, "population": 8, "tournament": 3, "removal": "worst",
    },
    "evolution, 5 of 8 stages": lambda k: {
        "strategy": "evolution", "child_steps": [5], "population": 8, "tournament": 3,
    },
    "hurdles": lambda k: {
        "strategy": "evolution", "child_steps": [2, 3, 3], "population": 8, "tournament": 3, "removal": "worst",
        "hurdle_every": 8,
    },
    "local search": lambda k: {"strategy": "local-search", **CHILD},
    "predictor": lambda k: {"strategy": "predictor", **CHILD, "prior": "none"},
    "predictor, prior of the demo text": lambda k: {"strategy": "predictor", **CHILD},
}  # fmt: skip
"""Settings of the strategies that look losses up, by name, for a budget of k trainings."""
ARCH = {"arch_learning_rate": 0.01, "arch_clip": 0.03, "arch_beta2": 0.99}  # as in the presets for small searches
ENAS = {"samples": 100, "controller_steps": 8}  # 25 in each of eight epochs would take half of the time
ONE_SHOT: dict[str, dict[str, Any]] = {
    "DARTS": {"relaxation": "darts", **ARCH},
    "DARTS, second order": {"relaxation": "darts", "order": 2, **ARCH},
    "I-DARTS": {"relaxation": "i-darts", **ARCH},
    "SNAS": {"sampling": "gumbel", **ARCH},
    "GDAS": {"sampling": "straight-through", **ARCH},
    "perturbation": {"selection": "perturbation", **ARCH},
    "random-shared": {"strategy": "random-shared", "samples": 100},
    "ENAS": {"strategy": "enas", **ENAS, "controller_learning_rate": 0.01},
    "ENAS, untrained": {"strategy": "enas", **ENAS, "controller_learning_rate": 0.0},
}


def found_by(config: SearchConfig, make: Callable[..., Any]) -> dict[str, Any]:
    """Search, and return the cell that was found, and the CPU seconds."""
    start = time.process_time()
    undrawn = mock.patch("flair_nas.drawing.charts.draw_progress")  # a picture takes longer than a search on a table
    blind = mock.patch("flair_nas.search.strategies.predictor.load_prior", demo_prior)  # not of the table itself
    with undrawn, blind, tempfile.TemporaryDirectory() as folder:
        cell = search_genotype(config, Path(folder) / "run", objective=make, progress=False).genotype
    return {"found": cell.one_line(), "seconds": round(time.process_time() - start, 1)}


@functools.cache
def demo_prior() -> CostModel:
    """Return the prior that the table of the demo text alone gives."""
    return make_prior(["demo"])


def judged(lines: list[dict]) -> list[dict]:
    """Return the lines with the true rank and regret of what was found; not by the seed that the search saw."""
    space = SmallSpace("ptb")

    def cost(cell: Genotype, seen: int | None) -> float:
        return statistics.mean(space.cost(cell, seed=seed) for seed in space.seeds if seed != seen)

    @functools.cache
    def costs(recurrence: str, seen: int | None) -> list[float]:
        return sorted(cost(cell, seen) for cell in all_cells(recurrence))

    found = []
    for line in lines:
        seen = seen_seed(space, line["seed"]) if line["name"] in TABULAR else None
        every = costs(line["recurrence"], seen)
        own = cost(replace(Genotype.parse(line["found"]), recurrence=line["recurrence"]), seen)
        found.append(line | {"rank": bisect.bisect_left(every, own) / len(every), "regret": own - every[0]})
    return found


def seen_seed(space: SmallSpace, seed: int) -> int:
    """Return the seed of the table that a search of a seed sees."""
    return space.seeds[seed % len(space.seeds)]


def searches_in(file: Path) -> list[dict]:
    """Return a line for each search of a file, whose lines have several for strategies that look losses up."""
    lines = []
    for line in lines_so_far(file):
        several = isinstance(line["found"], list)
        lines += (
            [line | {"seed": seed, "found": cell} for seed, cell in enumerate(line["found"], 1)] if several else [line]
        )
    return lines


def done_in(file: Path) -> set[tuple]:
    """Return strategy, budget, recurrence and seed of the searches in a file."""
    return {tuple(line[key] for key in ("name", "budget", "recurrence", "seed")) for line in searches_in(file)}


def runs(arguments: argparse.Namespace) -> None:
    """Run three strategies with 64 trainings, each to a folder; an epoch is a training."""
    space, budget, seed = SmallSpace("ptb"), BUDGETS[-1], 1
    settings, seen = {"text": None, "nodes": 3, "seed": seed, "device": "cpu", "epochs": budget}, seen_seed(space, seed)
    for name in ("random", "evolution, worst out", "local search"):
        folder = arguments.to / name.replace(",", "").replace(" ", "-")
        config = make_settings(SearchConfig, {**settings, **TABULAR[name](budget)})
        search_genotype(config, folder, objective=lambda _: TableObjective(space, seen, STAGES), progress=False)


def tabular(arguments: argparse.Namespace) -> None:
    """Run the strategies that look losses up."""
    space, done = SmallSpace("ptb"), done_in(arguments.out)
    for recurrence, budget, name in itertools.product(("full", "elementwise"), BUDGETS, TABULAR):
        if (name, budget, recurrence, 1) in done or budget <= TABULAR[name](budget).get("population", 0):
            continue
        cells = []
        for seed in range(1, arguments.seeds + 1):
            settings = {"text": None, "nodes": 3, "recurrence": recurrence, "seed": seed, "device": "cpu"}
            config = make_settings(SearchConfig, {"epochs": 1, **settings, **TABULAR[name](budget)})
            seen = seen_seed(space, seed)
            # halving: a stage, two and four in the three rungs; the best are trained for seven stages of eight
            own: Any = config.strategy
            steps = 3 * own.samples if name == "halving" else budget * STAGES
            found = found_by(config, lambda accelerator, seen=seen, n=steps: TableObjective(space, seen, n))
            cells.append(found["found"])
        append({"name": name, "budget": budget, "recurrence": recurrence, "found": cells}, arguments.out)


def limited(config: SearchConfig, limit: int) -> Callable[[Any], TextObjective]:
    """Return a function that makes the objective of a search with so many steps in an epoch."""

    def make(accelerator: Any) -> TextObjective:
        objective = build(config, read(config), accelerator)
        whole = objective.steps
        objective.steps = lambda epoch: min(limit, whole(epoch))  # type: ignore[method-assign]
        return objective

    return make


def one_shot(arguments: argparse.Namespace) -> None:
    """Run the strategies that train a supernet, each as long as the trainings of its budget."""
    done = done_in(arguments.out)
    torch.set_num_threads(1)
    text = str(arguments.text)
    start = time.process_time()
    for _ in trainings(text, 1, "full", all_cells()[::48]):
        pass
    limits = {line["name"]: line["steps"] // STAGES for line in lines_so_far(arguments.out) if "steps" in line}
    training = (time.process_time() - start) / 8
    sizes = {name: value for name, value in SETTINGS.items() if name not in ("strategy", "samples", "schedule")}
    for seed, name in itertools.product(range(1, arguments.seeds + 1), ONE_SHOT):
        if (name, arguments.budget, "full", seed) in done:
            continue
        settings = {key: value for key, value in sizes.items() if key != "init_range" or "strategy" in ONE_SHOT[name]}
        config = make_settings(SearchConfig, {"text": text, "seed": seed, **settings, **ONE_SHOT[name]})
        wanted = training * arguments.budget
        for _ in range(5):  # until it takes as long as it may
            limit = limits.setdefault(name, 40)  # steps of an epoch
            found = found_by(config, limited(config, limit))
            if abs(found["seconds"] / wanted - 1) < 0.15:
                break
            limits[name] = max(3, round(limit * min(4.0, wanted / found["seconds"])))
        line = {"name": name, "budget": arguments.budget, "recurrence": "full", "seed": seed, "steps": limit * STAGES}
        put(line | {"seconds_wanted": round(wanted, 1)} | found, arguments.out)


def table(files: list[Path] | None = None) -> str:
    """Return the figures as Markdown."""
    cells: dict[tuple[str, str], dict[int, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for line in found_in(files):
        cells[line["recurrence"], line["name"]][line["budget"]].append(line)
    titles = [f"{k} trainings: rank" for k in BUDGETS] + [f"{k}: regret" for k in BUDGETS]
    rows = [["recurrence", "strategy", "searches", *titles]]
    for (recurrence, name), by_budget in cells.items():
        row = [recurrence, name, str(max(map(len, by_budget.values())))]
        for key, form in (("rank", lambda value: f"{100 * value:.1f} %"), ("regret", lambda value: f"{value:.4f}")):
            row += [form(statistics.mean(of[key] for of in by_budget[k])) if k in by_budget else "-" for k in BUDGETS]
        rows.append(row)
    return as_table(rows)


def against_random(files: list[Path] | None = None) -> str:
    """Return how strategies that look losses up stand against random cells: differences of regret, and p by Holm."""
    regrets: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for line in found_in(files):
        if line["name"] in TABULAR:
            regrets[line["recurrence"], line["name"], line["budget"]][line["seed"]] = line["regret"]
    tests, differences = {}, {}
    for (recurrence, name, budget), found in regrets.items():
        if name == "random":
            continue
        random = regrets[recurrence, "random", budget]
        pairs = [(found[seed], random[seed]) for seed in sorted(found.keys() & random.keys())]
        key = f"{recurrence}/{name}/{budget}"
        tests[key] = float(ttest_rel(*zip(*pairs)).pvalue)
        differences[key] = statistics.mean(own - other for own, other in pairs)
    corrected = holm(tests)
    rows = [["recurrence", "strategy", *(f"{k} trainings" for k in BUDGETS)]]
    for recurrence, name in itertools.product(("full", "elementwise"), [*TABULAR][1:]):
        keys = [f"{recurrence}/{name}/{budget}" for budget in BUDGETS]
        known = (f"{differences[key]:+.4f} (p {as_p(corrected[key])})" if key in tests else "-" for key in keys)
        rows.append([recurrence, name, *known])
    return as_table(rows)


def found_in(files: list[Path] | None) -> list[dict]:
    """Return the lines of files, by default those of the kept figures, with rank and regret."""
    return judged([line for file in files or [FILE] for line in searches_in(file)])


def draw(path: Path, files: list[Path] | None = None) -> None:
    """Draw the ranks of what was found, cells with a full recurrence, a panel for each budget."""
    panels: dict[str, dict[str, list[float]]] = {}
    for line in sorted(found_in(files), key=lambda line: line["budget"]):
        if line["recurrence"] == "full":
            panel = panels.setdefault(f"rank in %, {line['budget']} trainings", {})
            panel.setdefault(line["name"], []).append(100 * line["rank"])
    draw_comparison(panels, path)


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    for name, run, seeds in (("tabular", tabular, 100), ("one-shot", one_shot, 5)):
        part = parts.add_parser(name)
        part.add_argument("--seeds", type=int, default=seeds, help=f"number of searches (default: {seeds})")
        part.add_argument("--out", type=Path, required=True, metavar="FILE")
        part.set_defaults(run=run)
        if run is one_shot:
            part.add_argument("--text", type=Path, required=True, metavar="DIR", help="the text of the table")
            part.add_argument("--budget", type=int, default=16, help="trainings that a search costs (default: 16)")
    part = parts.add_parser("table")
    part.add_argument("files", type=Path, nargs="*", metavar="FILE")
    part.set_defaults(run=lambda arguments: print(table(arguments.files), against_random(arguments.files), sep="\n\n"))
    part = parts.add_parser("picture")
    part.add_argument("files", type=Path, nargs="*", metavar="FILE")
    part.add_argument("--to", type=Path, required=True, metavar="FILE.svg")
    part.set_defaults(run=lambda arguments: draw(arguments.to, arguments.files))
    part = parts.add_parser("runs")
    part.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    part.set_defaults(run=runs)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
