"""Strategies of search on public recurrent cells, whose losses are known: is a strategy good beyond our own cells?

    python -m benchmarks.search.public_cells run FILE    # penn_treebank_3496_cells.jsonl; ten minutes, trains nothing
    python -m benchmarks.search.public_cells table

FILE has the test losses of random cells on the Penn Treebank, up to three runs each (Serianni and Kalita, ACL 2023, CC
BY 4.0), and their recipes (NAS-Bench-NLP, Klyuchnikov et al., 2020, Apache-2.0). Cells of the same function count as
one. A search sees the loss of one run, and the mean of the others judges what it found. Its space is these cells
alone: the neighbours of a cell are the nearest by their features. Nothing is tuned here: the predictor has the
settings of `flair_nas.library.cost_model`, evolution those of the arena.
"""

import argparse
import functools
import json
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.json_lines import RESULTS, append, as_table, lines_so_far
from flair_nas.library.cost_model import Array, CostModel
from flair_nas.search.strategies.children import TRIES
from flair_nas.search.strategies.evolution import EvolutionSettings, Member, Population
from flair_nas.search.strategies.predictor import STARTS

FILE = RESULTS / "public_cells.jsonl"
BUDGETS = (16, 32, 64, 128)
NEAR = 30  # neighbours of a cell
OPS = ("linear", "activation_tanh", "activation_sigm", "activation_leaky_relu", "elementwise_prod", "elementwise_sum",
       "blend")  # fmt: skip
Recipe = dict[str, dict[str, Any]]


def function_of(recipe: Recipe) -> str:
    """Return a text that is equal for cells of the same function: names of nodes do not count, nor orders of sums."""

    @functools.cache
    def expand(name: str) -> str:
        if name not in recipe:
            return name
        op, inputs = recipe[name]["op"], [expand(other) for other in recipe[name]["input"]]
        return f"{op}({','.join(inputs if op == 'blend' else sorted(inputs))})"

    return " ".join(expand(name) for name in sorted(recipe) if name.startswith("h_new"))


def features_of(recipe: Recipe, parameters: int) -> list[float]:
    """Return the features of a recipe: shares of operations and of pairs, depth, inputs, outputs, and size."""
    depth: dict[str, int] = defaultdict(int)
    pairs, ops, reads = Counter[str](), Counter[str](), Counter[str]()
    for name, node in recipe.items():  # inputs come first
        depth[name] = 1 + max(depth[other] for other in node["input"])
        ops[node["op"]] += 1
        for other in node["input"]:
            if other in recipe:
                pairs[f"{recipe[other]['op'] == 'linear'}, {node['op']}"] += 1
            reads[other.partition("_prev")[0]] += 1
    count, outputs = len(recipe), [node["op"] for name, node in recipe.items() if name.startswith("h_new")]
    found = [ops[op] / count for op in OPS] + [outputs.count(op) / len(outputs) for op in OPS]
    found += [pairs[f"{first}, {op}"] / count for first in (True, False) for op in OPS]
    found += [max(depth.values()) / 10, depth["h_new_0"] / 10, len(outputs) / 3, reads["x"] / count, reads["h"] / count]
    return [*found, math.log(count), math.log(parameters) - 16, 1.0]


class PublicCells:
    """The cells of a file: losses of each run, [runs, cells], features, [cells, K], and neighbours of each.

    Cells with fewer than two finite losses are left out.
    """

    def __init__(self, file: Path) -> None:
        losses, rows = defaultdict[str, list[list[float]]](list), {}
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            key = function_of(line["recipe"])
            losses[key].append([math.inf if loss is None else loss for loss in line["ptb_test_loss"]])
            rows[key] = features_of(line["recipe"], line["parameters"])
        means = {key: [statistics.mean(run) for run in zip(*found)] for key, found in losses.items()}
        kept = [key for key, found in means.items() if len(found) == 3 and sum(map(math.isfinite, found)) > 1]
        self.runs = np.array([means[key] for key in kept]).T
        self.features: Array = np.array([rows[key] for key in kept])
        spread = self.features / np.maximum(self.features.std(0), 1e-9)
        self.near = [((spread - row) ** 2).sum(1).argsort(kind="stable")[1 : NEAR + 1] for row in spread]

    def judge(self, seen: int) -> Array:
        """Return the share of the cells that are better than each, by the runs that a search did not see, [cells]."""
        others = np.delete(self.runs, seen, axis=0)
        costs = np.ma.masked_invalid(others).mean(0).filled(math.inf)
        ranks: Array = costs.argsort(kind="stable").argsort(kind="stable") / len(costs)
        return ranks


def search_at_random(cells: PublicCells, costs: Array, draw: random.Random) -> Iterator[int]:
    """Yield the cells to train."""
    yield from draw.sample(range(len(costs)), BUDGETS[-1])


def search_locally(cells: PublicCells, costs: Array, draw: random.Random) -> Iterator[int]:
    """Yield the neighbours of the best cell; move to the first better one, and begin anew where there is none."""
    seen = set[int]()
    while True:
        center = draw.choice([cell for cell in range(len(costs)) if cell not in seen])
        seen.add(center)
        yield center
        left = draw.sample([*cells.near[center]], NEAR)
        while left:
            if (cell := left.pop()) not in seen:
                seen.add(cell)
                yield cell
                if costs[cell] < costs[center]:
                    center, left = cell, draw.sample([*cells.near[cell]], NEAR)


def evolve(cells: PublicCells, costs: Array, draw: random.Random) -> Iterator[int]:
    """Yield the children of evolution that removes the worst."""
    population = Population(EvolutionSettings(population=8, tournament=3, removal="worst", child_steps=[1]))
    trained = list[int]()
    while True:
        parent = trained[population.choose_parent(draw).number] if population.full else None
        for _ in range(TRIES):
            child = draw.randrange(len(costs)) if parent is None else int(draw.choice(cells.near[parent]))
            if child not in trained:
                break
        trained.append(child)
        yield child
        population.add(Member(len(trained) - 1, costs[child]), draw)


def predict(cells: PublicCells, costs: Array, draw: random.Random) -> Iterator[int]:
    """Yield the cells of the lowest cost by a draw of the predictor."""
    seen, seed = draw.sample(range(len(costs)), STARTS), draw.randrange(10**6)
    yield from seen
    empty = CostModel.empty(cells.features.shape[1])
    while True:
        model = empty.learn(cells.features[seen], costs[seen])
        predicted = model.draw(cells.features, (seed, len(seen)))
        predicted[seen] = math.inf
        seen.append(int(predicted.argmin()))
        yield seen[-1]


Search = Callable[[PublicCells, Array, random.Random], Iterator[int]]
STRATEGIES: dict[str, Search] = {
    "random": search_at_random,
    "evolution, worst out": evolve,
    "local search": search_locally,
    "predictor": predict,
}


def run(file: Path, count: int) -> None:
    """Run searches of each strategy; add a line with the mean ranks of what they found by budget."""
    cells, done = PublicCells(file), {line["name"] for line in lines_so_far(FILE)}
    ranks = [cells.judge(seen) for seen in range(3)]
    for name, strategy in STRATEGIES.items():
        if name in done:
            continue
        found = defaultdict[int, list[float]](list)
        for seed in range(count):
            costs, trained = cells.runs[seed % 3], list[int]()
            for cell in strategy(cells, costs, random.Random(seed)):
                trained.append(cell)
                if len(trained) in BUDGETS:
                    found[len(trained)].append(ranks[seed % 3][min(trained, key=lambda cell: costs[cell])])
                if len(trained) == BUDGETS[-1]:
                    break
        line = {"name": name, "cells": len(ranks[0]), "searches": count}
        line |= {str(k): [statistics.mean(of), statistics.stdev(of) / math.sqrt(count)] for k, of in found.items()}
        append(line, FILE)


def table() -> str:
    """Return the ranks as Markdown, mean ± standard error of the mean."""
    rows = [["strategy", *(f"{k} trainings" for k in BUDGETS)]]
    for line in lines_so_far(FILE):
        rows.append([line["name"], *(f"{100 * line[str(k)][0]:.2f} ± {100 * line[str(k)][1]:.2f} %" for k in BUDGETS)])
    return as_table(rows)


def main() -> None:
    """Run the searches, or show what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    part = parts.add_parser("run")
    part.add_argument("file", type=Path, metavar="FILE")
    part.add_argument("--searches", type=int, default=1000, metavar="N", help="of each strategy (default: 1000)")
    parts.add_parser("table")
    arguments = parser.parse_args()
    if arguments.part == "run":
        run(arguments.file, arguments.searches)
    print(table())


if __name__ == "__main__":
    main()
