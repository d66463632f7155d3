"""flair-nas forgetting: metrics of earlier tasks after each stage of a continual search."""

from __future__ import annotations

import argparse
import statistics

from flair_nas.cli.flags import Actions, add_action
from flair_nas.cli.log import quiet_flair
from flair_nas.runs.signals import exit_on_signal

EXAMPLES = """examples:
  flair-nas search --preset cas-small --corpus conll_2000 --sparsity 1e-7 --out runs/1
  flair-nas search --preset cas-small --corpus wnut_17 --after runs/1 --sparsity 0.1 --orthogonality 0.1 --out runs/2
  flair-nas forgetting runs/1 runs/2

A row is a task, a column the stage after which it is evaluated: with the genotype and the head of its own stage, and
the layer of the later one."""


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "forgetting", run, EXAMPLES)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="finished searches, each --after the one before")
    parser.add_argument("--part", choices=("valid", "test"), default="valid", help="(default: valid)")


def run(arguments: argparse.Namespace) -> int:
    """Show how a continual search (search --after) does on the tasks before."""
    quiet_flair(arguments)
    with exit_on_signal():
        from flair_nas.search.forgetting import evaluate_stages

    count = len(arguments.runs)
    tasks = []
    for number, task in enumerate(evaluate_stages(arguments.runs, arguments.part)):
        if number == 0:
            print(f"| task | metric | {' | '.join(f'after {stage}' for stage in range(1, count + 1))} | forgetting |")
            print("| --- " * (count + 3) + "|")
        cells = ["-"] * number + [f"{value:.2f}" for value in task.values]
        print(f"| {task.name} | {task.metric.title} | {' | '.join(cells)} | {task.forgetting + 0.0:.2f} |", flush=True)
        tasks.append(task)
    mean = statistics.mean(task.forgetting for task in tasks[:-1])
    print(f"\nmean forgetting of the first {count - 1}: {mean + 0.0:.2f}")
    unlearned = [task for task in tasks if task.unlearned]
    for task in unlearned:
        print(
            f"{task.name} learned nothing: {task.unlearned}. Its row tells nothing: search it anew with more --epochs "
            "or another --learning-rate, and the later ones after it."
        )
    return 1 if len(unlearned) == count else 0
