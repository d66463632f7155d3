"""Continual search (CAS) on three corpora, beside a cell that stays: what earlier corpora lose, and what each gets.

    python -m benchmarks.search.continual_search run --data-root DATASETS --embeddings NAME ... --third DIR --out FOLDER
    python -m benchmarks.search.continual_search table                            # the kept figures as Markdown

The corpora are CoNLL-2000, WNUT-2017 and DIR, a part of CoNLL-2003. All arms of a seed begin with the same search on
CoNLL-2000, of the preset `cas-small` with a rate that falls to 0. Then they have as many epochs on each corpus: the
arms that search, those of the preset; the others train the cell of the first corpus alone. Stages that are done are
kept, also parts of one; FOLDER/continual_search.jsonl is kept in results/. The weight 0.1 is the middle one of three
that seed 1 tried; it was not tuned.
"""

import argparse
import itertools
import statistics
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.json_lines import as_table, lines_in, lines_so_far, put
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.genotype import Genotype
from flair_nas.search import build
from flair_nas.search.continual import load_stage
from flair_nas.search.forgetting import evaluate_stages, load_task
from flair_nas.search.protocols import Strategy
from flair_nas.search.several_config import settings_class
from flair_nas.search.strategies.retrained import Retrained
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.settings.resolve import load_preset

NAME = "continual_search.jsonl"
SEEDS = (1, 2, 3)


def penalties(weight: float) -> dict[str, float]:
    """Return weights of both penalties; they are added to the sum of a batch's losses, about 200 here."""
    return {"sparsity": weight, "orthogonality": weight}


ARMS: dict[str, dict[str, Any]] = {
    "cell stays, no penalties": {"stays": True},
    "cell stays, penalties of 0.1": {"stays": True, **penalties(0.1)},
    "search, no penalties": {},
    "search, penalties of 0.1 (CAS)": penalties(0.1),
    "models of their own": {"stays": True, "alone": True},
    "cell stays, penalties of 0.001, as published": {"stays": True, **penalties(0.001)},
    "cell stays, penalties of 1": {"stays": True, **penalties(1.0)},
}
ONE_SEED = (*ARMS,)[-2:]
"""Arms that only tell which weights do anything."""
CORPORA = ("CoNLL-2000", "WNUT-2017", "part of CoNLL-2003")


def staying(genotype: Genotype) -> Any:
    """Return a strategy that trains one cell alone."""

    class Stays(Retrained):
        def __init__(self, search: Strategy, _: int, *others: Any) -> None:
            super().__init__(search, 0, *others)
            self._choose(genotype)

    return mock.patch.object(build, "Retrained", Stays)


def run_stage(arguments: argparse.Namespace, seed: int, number: int, name: str, **settings: Any) -> Path:
    """Search on a corpus, or train a cell on it, and return the run folder."""
    config_type = settings_class("tagging")
    preset = load_preset("search", "cas-small", config_type)
    data = [{"corpus": "conll_2000"}, {"corpus": "wnut_17"}, {"corpus": arguments.third, "columns": "text=0,ner=3"}]
    common = {"data_root": arguments.data_root, "embeddings": arguments.embeddings, "seed": seed}
    common["schedule"] = "cosine"  # with a constant rate, F1 of the last epochs differs by 20 points
    stays: Genotype | None = settings.pop("stays", None)
    if stays is not None:  # Retrained is what trains a cell alone
        settings["retrain_epochs"] = preset["epochs"] - 1
    folder = arguments.out / f"{seed}-{number}-{name}"
    config = make_settings(config_type, preset | common | data[number - 1] | settings)
    with staying(stays) if stays is not None else nullcontext():
        search_genotype(config, folder, progress=False)
    return folder


def run_arm(arguments: argparse.Namespace, seed: int, arm: str) -> list[list[float]]:
    """Return test F1 of each corpus after its own stage and each later one."""
    settings = dict(ARMS[arm])
    folders = [run_stage(arguments, seed, 1, "all", sparsity=1e-7)]
    if settings.pop("stays", False):
        settings["stays"] = load_stage(folders[0]).genotype
    alone = settings.pop("alone", False)
    name = "".join(letter if letter.isalnum() else "-" for letter in arm)
    for number in (2, 3):
        after = {} if alone else {"after": str(folders[-1])}
        folders.append(run_stage(arguments, seed, number, name, **after, **settings))
    if alone:
        return [[float(load_task(load_stage(folder), "test").evaluate().value)] for folder in folders]
    return [task.values for task in evaluate_stages(folders, "test")]


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing."""
    file = arguments.out / NAME
    done = {(line["seed"], line["arm"]) for line in lines_so_far(file)}
    for seed, arm in sorted(itertools.product(SEEDS, ARMS), key=lambda pair: pair[1] in ONE_SEED):
        if (seed, arm) not in done and (seed == SEEDS[0] or arm not in ONE_SEED):
            f1 = [[round(value, 2) for value in values] for values in run_arm(arguments, seed, arm)]
            put({"seed": seed, "arm": arm, "test_f1": f1}, file)


def table() -> str:
    """Return the kept figures as Markdown."""
    lines = lines_in(Path(__file__).parents[1] / "results" / NAME)
    rows = [["arm", "seeds", *(f"{name}, F1 at the end" for name in CORPORA), "forgetting of the first two"]]
    for arm in ARMS:
        found = [line["test_f1"] for line in lines if line["arm"] == arm]
        if not found:
            continue
        row = [arm, str(len(found)), *(mean_and_spread([values[task][-1] for values in found]) for task in range(3))]
        lost = [statistics.mean(values[task][0] - values[task][-1] for task in range(2)) for values in found]
        error = f", standard error {statistics.stdev(lost) / len(lost) ** 0.5:.1f}" if len(lost) > 1 else ""
        rows.append([*row, "-" if "own" in arm else f"{statistics.mean(lost):.1f}{error}"])
    return as_table(rows)


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    part = parts.add_parser("run")
    part.add_argument("--data-root", required=True, metavar="DATASETS")
    part.add_argument("--embeddings", nargs="+", required=True, metavar="NAME")
    part.add_argument("--third", required=True, metavar="DIR")
    part.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    part.set_defaults(run=run)
    parts.add_parser("table").set_defaults(run=lambda _: print(table()))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "out" in arguments:
        arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
