"""What an early look at a tagger tells of its end: by F1 on dev, and by the loss there.

    python -m benchmarks.taggers.select_rule_tags

The curves are those of kept tables of taggers, each layer with one seed or more. After
so many epochs, runs are ranked by the best figure so far; the rank correlation is that with the best F1 on dev of all
their epochs (Spearman), of runs of the same seed, and its mean over seeds. In each of many trials, eight layers are
drawn, with a seed each, and the best of them is taken; what that is worth is the mean test F1 of that layer over all of
its seeds. In brackets the same of every other layer, in the order of the table, and of the rest: two halves that tell
how much of it is chance.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from benchmarks.tables.kept import kept
from benchmarks.taggers.select_rule import by_halving, cost_of_rule
from flair_nas.experiments.tasks import TAGGING, Rule

KEPT = ("wnut-small", "zoo-small")  # of one setting and one learning rate
EPOCHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)
DRAWN, TRIALS = 8, 1000
BUDGETS = (3, 5, 8)  # full trainings
FULL = Rule(1.0, 0.25)


def curves() -> dict[str, dict[int, dict]]:
    """The runs of taggers that came to their end, by layer and seed."""
    found: dict[str, dict[int, dict]] = {}
    for table in KEPT:
        _, results = kept(table)
        for cell, names in results.plan["cells"].items():
            for name in names:
                run = results.runs[name]
                ended = run.get("exhausted") or len(run.get("dev", ())) == max(EPOCHS)
                if ended and "unseen" in run:  # which taggers have
                    found.setdefault(cell, {})[int(name.rpartition("-seed")[2])] = run
    return found


def seen(run: dict, by: str, epochs: int) -> float:
    """The best so far; the larger, the better."""
    return max(run["dev"][:epochs]) if by == "F1" else -min(run["dev_loss"][:epochs])


def correlation(layers: list[dict[int, dict]], by: str, epochs: int) -> float:
    """The mean rank correlation over seeds."""
    found = []
    for seed in sorted({seed for runs in layers for seed in runs}):
        runs = [of[seed] for of in layers if seed in of]
        if len(runs) > 2:
            found.append(spearmanr([seen(r, by, epochs) for r in runs], [max(r["dev"]) for r in runs]).statistic)
    return float(np.mean(found))


def worth(layers: list[dict[int, dict]], by: str, epochs: int) -> float:
    """The mean test F1 of the layer that is taken."""
    draw = np.random.default_rng(1)
    mean = [float(np.mean([run["test"] for run in runs.values()])) for runs in layers]
    figures = [[seen(run, by, epochs) for run in runs.values()] for runs in layers]
    total = 0.0
    for _ in range(TRIALS):
        of = draw.choice(len(layers), min(DRAWN, len(layers) - 1), replace=False)
        found = [figures[layer][draw.integers(len(figures[layer]))] for layer in of]
        total += mean[of[int(np.argmax(found))]]
    return total / TRIALS


def costs(run: dict, by: str) -> list[float]:
    """What a rule sees of a run after each epoch: on the way by F1 or by the loss, after all epochs by F1."""
    last = max(EPOCHS)
    return [-seen(run, by if epochs < last else "F1", epochs) for epochs in range(1, last + 1)]


def worth_of_rule(layers: list[dict[int, dict]], rule: Rule, by: str, budget: int) -> tuple[float, int]:
    """The mean test F1 of the layer that a rule takes, of as many as so many full trainings are enough for."""
    draw = np.random.default_rng(1)
    mean = [float(np.mean([run["test"] for run in runs.values()])) for runs in layers]
    last = max(EPOCHS)
    count = sum(cost_of_rule(rule, count, last) <= budget * last for count in range(1, len(layers) + 1))
    of_layers = [[np.array(costs(run, by)) for run in runs.values()] for runs in layers]
    choose = by_halving(rule, last)
    total = 0.0
    for _ in range(TRIALS):
        of = draw.choice(len(layers), count, replace=False)
        total += mean[of[choose(np.array([of_layers[k][draw.integers(len(of_layers[k]))] for k in of]))]]
    return total / TRIALS, count


def rules() -> str:
    """What rules come to, as a table; in its last columns the mean over budgets, of half of the layers each."""
    every = list(curves().values())
    rows = ["| rule | by | " + " | ".join(f"{budget} trainings" for budget in BUDGETS)
            + " | every other layer | the rest |",
            "| --- | --- |" + " --- |" * (len(BUDGETS) + 2)]  # fmt: skip
    for first in (0.1, 0.2, 0.35, 0.5, 1.0):
        for keep in (0.5, 0.25) if first < 1 else (0.25,):
            for by in ("F1", "loss") if first < 1 else ("F1",):
                found = [worth_of_rule(every, Rule(first, keep), by, budget) for budget in BUDGETS]
                halves = [
                    np.mean([worth_of_rule(half, Rule(first, keep), by, budget)[0] for budget in BUDGETS])
                    for half in (every[::2], every[1::2])
                ]
                name = f"halving from {first:g}, keeping {keep:g}" if first < 1 else "full trainings"
                cells = [f"{worth:.2f} ({count})" for worth, count in found] + [f"{mean:.2f}" for mean in halves]
                rows.append(f"| {name} | {by} | {' | '.join(cells)} |")
    return "\n".join(rows)


def chosen() -> str:
    """The rule that `tune` has for taggers next to full trainings, on all layers and on both halves, as a table."""
    every, rule = list(curves().values()), TAGGING.rule
    named = {f"halving from {rule.first:g}, keeping {rule.keep:g}": (rule, "loss"), "full trainings": (FULL, "F1")}
    rows = ["| layers | rule | " + " | ".join(f"{budget} trainings" for budget in BUDGETS) + " |",
            "| --- | --- |" + " --- |" * len(BUDGETS)]  # fmt: skip
    for title, part in (("all", every), ("every other", every[::2]), ("the rest", every[1::2])):
        for name, (rule, by) in named.items():
            found = [worth_of_rule(part, rule, by, budget) for budget in BUDGETS]
            rows.append(f"| {title} | {name} | {' | '.join(f'{worth:.2f} ({count})' for worth, count in found)} |")
    return "\n".join(rows)


def table() -> str:
    """The figures as a table."""
    every = list(curves().values())
    parts = [every, every[::2], every[1::2]]
    rows = [f"{len(every)} layers, {sum(map(len, every))} runs.", "",
            "| after | rank correlation, by F1 | by loss | test F1 of the choice, by F1 | by loss |",
            "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for epochs in EPOCHS:
        cells = [f"{correlation(every, by, epochs):.2f}" for by in ("F1", "loss")]
        cells += [_parted([worth(part, by, epochs) for part in parts]) for by in ("F1", "loss")]
        rows.append(f"| {epochs} | {' | '.join(cells)} |")
    means = [np.mean([np.mean([run["test"] for run in runs.values()]) for runs in part]) for part in parts]
    return "\n".join([*rows, "", f"Test F1 of a layer that is drawn: {_parted(means)}."])


def _parted(values: Sequence[float]) -> str:
    every, *halves = (f"{value:.2f}" for value in values)
    return f"{every} ({', '.join(halves)})"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"{table()}\n\n{rules()}\n\n{chosen()}")
