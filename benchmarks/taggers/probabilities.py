"""How often P(better) is 0.95 or more between two layers that do not differ, on the runs of all kept tables.

    python -m benchmarks.taggers.probabilities [--trials 400]

A trial makes two layers from what the runs of a column found in each sentence of test, in one of three ways:

- dealt: runs of the column are dealt out at random, each once, whatever their row;
- one layer: both have the seeds of one row. A seed is that row's mean and normal deviations, which have the covariance
  of its runs over all sentences. Sentences are drawn anew, the same for both layers;
- level layers: the same of two rows, of which the one is better on some sentences, the other on others, and whose
  seeds differ by unlike amounts. The difference that they have over all sentences is taken off.

Each trial counts for both layers. P(better) should be 0.95 or more in 5 %, and print as 1.00 in 0.5 %.

Besides, seeds are drawn from normal distributions, for all pairs of 2 to 10 seeds, without any error of sentences:
both layers vary equally, or that with fewer seeds twice as much, or half as much.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables.kept import kept
from flair_nas.experiments.counts import unpack_counts
from flair_nas.experiments.statistics import combine_errors, compare, mean_errors
from flair_nas.experiments.tasks import TASKS

TABLES = ("ess-conll2000-small", "joint", "select-conll2000", "select-wnut", "starts", "wnut-small", "zoo-small")
RESULTS = Path(__file__).parents[1] / "results" / "probabilities.json"
SEEDS = ((2, 2), (3, 3), (5, 5), (8, 8), (2, 5), (3, 6))
WAYS = ("dealt", "one layer", "level layers")
LIMITS = {"0.95": 0.95, "1.00": 0.995}
NORMAL_TRIALS, MOST_SEEDS, SPREADS = 20_000, 10, (1.0, 2.0, 0.5)
LEAST_RUNS = 3  # of a row, to know how its seeds differ


def columns() -> dict[str, tuple[Any, dict[str, dict[str, np.ndarray]]]]:
    """Return the task of each column of each table, and the counts of its runs by row and name."""
    found = {}
    for table_name in TABLES:
        table, ledger = kept(table_name)
        for column in table.columns:
            rows = {}
            for row in table.rows:
                names = ledger.plan["cells"].get(f"{row.name} / {column.name}", [])
                good = [name for name in names if "counts" in ledger.runs.get(name, {})]
                rows[row.name] = {name: unpack_counts(ledger.runs[name]["counts"]).astype(float) for name in good}
            found[f"{table_name}, {column.name}"] = TASKS[column.task], rows
    return found


def trial(way: str, rows: list[np.ndarray], sizes: tuple[int, int], task: Any, draw: np.random.Generator) -> float:
    """Return P(better) of two layers that do not differ; rows have [runs, sentences, K] each."""
    truth = 0.0
    if way == "dealt":
        runs = [run for row in rows for run in row]
        dealt = [runs[place] for place in draw.permutation(len(runs))]
        layers = [dealt[: sizes[0]], dealt[sizes[0] : sum(sizes)]]
    else:
        several = [row for row in rows if len(row) >= LEAST_RUNS]
        chosen = (
            draw.choice(len(several), 2, replace=False) if way == "level layers" else [draw.integers(len(several))] * 2
        )
        sentences = draw.integers(0, rows[0].shape[1], rows[0].shape[1])
        layers = []
        for place, size in zip(chosen, sizes):
            row = several[place]
            normal = draw.standard_normal((size, len(row))) / np.sqrt(len(row) - 1)
            weights = 1 / len(row) + normal - normal.mean(1, keepdims=True)
            layers.append(list(np.tensordot(weights, row[:, sentences], 1)))
        first, other = (float(task.figure(several[place].sum(1)).mean()) for place in chosen)
        truth = task.gain(first, other)
    found = compare(*layers, task.figure, task.gain(1.0, 0.0))
    return found._replace(value=found.value - truth).probability


def shares(trials: int) -> dict[str, Any]:
    """Return the percentage of trials of each limit, by column, way and numbers of seeds."""
    found: dict[str, Any] = {}
    for name, (task, rows) in columns().items():
        stacked = [np.stack(list(runs.values())) for runs in rows.values() if runs]
        count = sum(map(len, stacked))
        found[name] = {"runs": count, "ways": {}}
        for way in WAYS:
            for sizes in SEEDS:
                if way == "dealt" and sum(sizes) > count:
                    continue
                draw = np.random.default_rng([WAYS.index(way), *sizes])
                of_one = np.array([trial(way, stacked, sizes, task, draw) for _ in range(trials)])
                both = np.concatenate([of_one, 1 - of_one])
                percent = {limit: round(100 * float(np.mean(both >= least)), 1) for limit, least in LIMITS.items()}
                found[name]["ways"].setdefault(way, {})[" and ".join(map(str, sizes))] = percent
            print(name, way, json.dumps(found[name]["ways"][way]), flush=True)
    return found


def normal(trials: int) -> dict[str, list[float]]:
    """Return the percentage of 0.95 or more by numbers of normal seeds, for each spread of the fewer."""
    draw, found = np.random.default_rng(0), {}
    for few in range(2, MOST_SEEDS + 1):
        for many in range(few, MOST_SEEDS + 1):
            found[f"{few} and {many}"] = [_percent_sure(few, many, spread, trials, draw) for spread in SPREADS]
        print(few, json.dumps(found[f"{few} and {many}"]), flush=True)
    return found


def _percent_sure(few: int, many: int, spread: float, trials: int, draw: np.random.Generator) -> float:
    one, other = draw.normal(0, spread, (trials, few)), draw.normal(0, 1, (trials, many))
    values, spreads = one.mean(1) - other.mean(1), zip(one.var(1, ddof=1), other.var(1, ddof=1))
    errors = (mean_errors([(float(a), few), (float(b), many)]) for a, b in spreads)
    found = np.array([combine_errors(value, parts).probability for value, parts in zip(values, errors)])
    return round(100 * float(np.mean([found >= LIMITS["0.95"], 1 - found >= LIMITS["0.95"]])), 1)


def normal_table() -> str:
    """Return the kept percentages of normal seeds."""
    kept_shares = json.loads(RESULTS.read_text())
    many = range(2, MOST_SEEDS + 1)
    lines = [f"| seeds | {' | '.join(map(str, many))} |", "| --- |" + " --- |" * len(many)]
    for few in many:
        cells = [kept_shares["normal"].get(f"{few} and {number}") for number in many]
        lines.append(f"| {few} | {' | '.join(', '.join(map(str, cell)) if cell else '' for cell in cells)} |")
    trials = 2 * kept_shares["normal_trials"]
    words = "both layers vary equally, that with fewer seeds twice as much, half as much"
    return "\n".join([*lines, "", f"Percentages of {trials:,}: {words}."])


def table() -> str:
    """Return the kept percentages as a table for each limit."""
    kept_shares = json.loads(RESULTS.read_text())
    sizes = [" and ".join(map(str, pair)) for pair in SEEDS]
    parts = []
    for limit, title in (
        ("0.95", "0.95 or more, which should be 5.0"),
        ("1.00", "1.00 as printed, which should be 0.5"),
    ):
        lines = [f"| {title} | runs | {' | '.join(f'{size} seeds' for size in sizes)} |", "| --- |" + " --- |" * 7]
        for name, of in kept_shares["columns"].items():
            cells = [", ".join(str(of["ways"][way].get(size, {}).get(limit, "-")) for way in WAYS) for size in sizes]
            lines.append(f"| {name} | {of['runs']} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    said = f"Percentages of {2 * kept_shares['trials']:,}: {', '.join(WAYS)}; -: too few runs to deal."
    return "\n\n".join([*parts, said])


def shared() -> str:
    """Return which rows of different tables have runs in common."""
    where: dict[bytes, list[tuple[str, str, str]]] = {}
    for table_name, (_, rows) in columns().items():
        for row, runs in rows.items():
            for name, counts in runs.items():
                where.setdefault(counts.tobytes(), []).append((table_name, row, name.rpartition("-seed")[2]))
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for places in where.values():
        if len(places) > 1:
            found.setdefault(tuple(place[:2] for place in places), []).append(places[0][2])
    lines = ["| in | row | and in | row | seeds |", "| --- | --- | --- | --- | --- |"]
    for ((one, row), (other, its_row)), seeds in found.items():
        lines.append(f"| {one} | {row} | {other} | {its_row} | {', '.join(seeds)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the trials, and keep their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400, help="of each way and numbers of seeds (400)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures are kept")
    arguments = parser.parse_args()
    kept_shares = {"normal_trials": NORMAL_TRIALS, "normal": normal(NORMAL_TRIALS)}
    kept_shares |= {"trials": arguments.trials, "columns": shares(arguments.trials)}
    arguments.out.write_text(json.dumps(kept_shares, indent=1) + "\n")


if __name__ == "__main__":
    main()
