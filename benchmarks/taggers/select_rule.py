"""How good a rule of selection is, on learning curves of recurrent cells that others have published.

    python -m benchmarks.taggers.select_rule --curves wikitext2_341_cells.jsonl

The curves (50 epochs on WikiText-2 of 341 cells; NAS-Bench-NLP, Klyuchnikov et al., 2020) are parted into two halves
by a fixed draw: rules are compared on the one, and figures are of the other. In each of many trials candidates are
drawn, as many as the budget is enough for; what is seen of a candidate is the best valid loss so far and an error of
its seed, as large as between three trainings of one cell there. The regret is by how much the winner's perplexity
after all epochs is above that of the best cell of the half. Candidates are drawn from all cells of a half, or from
those that are among the hundred best of all.
"""

import argparse
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.json_lines import RESULTS, lines_in, replace_lines
from flair_nas.experiments.tasks import Rule

SEED_ERROR = 0.0034  # nats: one cell, trained three times, ended at perplexities of 104.8, 105.1 and 105.7
BUDGETS = (2, 4, 8, 16)  # full trainings
FIRST, KEEP = (0.02, 0.04, 0.06, 0.1, 0.2, 0.4), (1 / 2, 1 / 3, 1 / 4)
TRIALS = 2000
FILE = RESULTS / "select_rule.jsonl"
SHOWN_BUDGETS = (2, 4, 8)
SHOWN_RULES = (
    *("random", "full trainings", "stopped after 1", "stopped after 5", "stopped after 10"),
    *(f"halving from {first}, keeping 0.25" for first in ("0.02", "0.04")),
    *(f"halving from 0.1, keeping {keep}" for keep in ("0.50", "0.33", "0.25")),
    "halving from 0.2, keeping 0.25",
)

Choose = Callable[[np.ndarray], int]


def read_curves(path: Path) -> np.ndarray:
    """Valid losses in nats, [cells, epochs]; one that is not a number is as bad as can be."""
    rows = [json.loads(line)["valid"] for line in path.read_text().splitlines()]
    losses = np.array([[np.inf if value is None else value for value in row] for row in rows], dtype=float)
    return np.where(np.isfinite(losses), losses, 20.0)


def halves(losses: np.ndarray, best: int | None) -> list[np.ndarray]:
    """The numbers of the cells of both halves, all or those that are among the best of all."""
    order = np.random.default_rng(0).permutation(len(losses))
    allowed = set(np.argsort(losses[:, -1])[:best].tolist())
    parts = order[: len(order) // 2], order[len(order) // 2 :]
    return [np.array([cell for cell in part if cell in allowed]) for part in parts]


def by_halving(rule: Rule, epochs: int) -> Choose:
    """Gives the place of the winner among candidates, of what is seen of them, [candidates, epochs]."""

    rungs = rule.rungs(epochs)
    counts = functools.cache(lambda candidates: count_places(rule, candidates, rungs))

    def choose(seen: np.ndarray) -> int:
        alive = [str(number) for number in range(len(seen))]
        for rung, count in zip(rungs[:-1], counts(len(seen))[1:]):
            alive = survivors({name: seen[int(name), rung - 1] for name in alive}, count)
        return int(survivors({name: seen[int(name), -1] for name in alive}, 1)[0])

    return choose


def by_stopping(after: int) -> Choose:
    """All train so many epochs, and the best of them to the end."""
    return lambda seen: int(np.argmin(seen[:, after - 1]))


def simulate(losses: np.ndarray, pool: np.ndarray, choose: Choose, count: int) -> tuple[float, float]:
    """The mean regret in perplexity, and the mean rank of the winner in the pool, 1 for the best."""
    draw = np.random.default_rng(1)
    best_so_far, final = np.minimum.accumulate(losses, axis=1), np.sort(losses[pool, -1])
    regrets, ranks = [], []
    for _ in range(TRIALS if count < len(pool) else TRIALS // 10):
        cells = draw.choice(pool, count, replace=False)
        seen = best_so_far[cells] + draw.normal(0, SEED_ERROR, (count, 1))
        winner = losses[cells[choose(seen)], -1]
        regrets.append(np.exp(winner) - np.exp(final[0]))
        ranks.append(1 + np.searchsorted(final, winner))
    return float(np.mean(regrets)), float(np.mean(ranks))


def rules(epochs: int, budget: int, most: int) -> dict[str, tuple[Choose, int]]:
    """By name: how to choose, and among how many candidates."""
    found: dict[str, tuple[Choose, int]] = {"random": (by_stopping(epochs), 1)}
    found["full trainings"] = by_stopping(epochs), min(budget, most)
    for after in (1, 2, 5, 10, 20):
        count = (budget * epochs - (epochs - after)) // after
        found[f"stopped after {after}"] = by_stopping(after), min(count, most)
    for first in FIRST:
        for keep in KEEP:
            rule = Rule(first, keep)
            count = sum(cost_of_rule(rule, count, epochs) <= budget * epochs for count in range(1, most + 1))
            found[f"halving from {first:g}, keeping {keep:.2f}"] = by_halving(rule, epochs), count
    return found


def count_places(rule: Rule, candidates: int, rungs: Sequence[int]) -> list[int]:
    """Return the number of candidates that train in each rung, at least one."""
    counts = [candidates]
    while len(counts) < len(rungs):
        counts.append(max(1, math.ceil(counts[-1] * rule.keep)))
    return counts


def survivors(costs: Mapping[str, float], count: int) -> list[str]:
    """Return the candidates with the smallest costs, in their order; NaN counts as infinite."""
    ranked = sorted(costs, key=lambda name: math.inf if math.isnan(costs[name]) else costs[name])
    return [name for name in costs if name in ranked[:count]]


def cost_of_rule(rule: Rule, candidates: int, epochs: int) -> int:
    """Return the sum of the epochs of all candidates."""
    rungs = rule.rungs(epochs)
    lengths = [after - before for before, after in zip([0, *rungs], rungs)]
    return sum(count * length for count, length in zip(count_places(rule, candidates, rungs), lengths))


def table() -> str:
    """Regrets on the half that is reported, as a table."""
    kept = lines_in(FILE)
    titles = {"all": "all cells", "of the best 100": "the best 100"}
    heads = [f"{title}, {SHOWN_BUDGETS[0]} trainings | " + " | ".join(map(str, SHOWN_BUDGETS[1:]))
             for title in titles.values()]  # fmt: skip
    rows = [f"| rule | {' | '.join(heads)} |", "| --- |" + " --- |" * len(titles) * len(SHOWN_BUDGETS)]
    for rule in SHOWN_RULES:
        of = {(x["cells"], x["budget"]): x for x in kept if (x["half"], x["rule"]) == ("reported", rule)}
        lines = [of[cells, budget] for cells in titles for budget in SHOWN_BUDGETS]
        shown = [f"{x['regret']:.1f} ({x['rank']:.1f}, {x['candidates']})" for x in lines]
        rows.append(f"| {rule} | {' | '.join(shown)} |")
    return "\n".join(rows)


def main() -> None:
    """Simulates all rules, and keeps their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    losses = read_curves(arguments.curves)
    epochs, figures = losses.shape[1], []
    for best in (None, 100):
        for half, pool in zip(("tuned on", "reported"), halves(losses, best)):
            for budget in BUDGETS:
                for name, (choose, count) in rules(epochs, budget, len(pool)).items():
                    regret, rank = simulate(losses, pool, choose, count)
                    cells = "all" if best is None else f"of the best {best}"
                    figures.append({"cells": cells, "half": half, "pool": len(pool), "budget": budget, "rule": name,
                                    "candidates": count, "regret": regret, "rank": rank})  # fmt: skip
    replace_lines(arguments.out, figures, lambda _: True)


if __name__ == "__main__":
    main()
