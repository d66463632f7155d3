"""Cells searched on several corpora together (MAS), on each alone, and random ones; taggers on a third corpus, too.

    python -m benchmarks.search.several_tasks search --data-root DATA --embeddings NAME ... --out FOLDER
    python -m benchmarks.search.several_tasks taggers --data-root DATA --embeddings NAME ... --third DIR --out FOLDER
    python -m benchmarks.search.several_tasks table                               # the kept figures as Markdown

Searches are those of the preset `several-small`, with 875 to 954 steps of the model weights each. DIR is a part of
CoNLL-2003 that no search sees. Each cell that a seed of a search found gets one tagger on each corpus: five on the
third, three on the others, with the same seeds. Beside them on the third stand two layers, and the cells searched on
both with their operations in another order and wired at random. Both parts go on where they were stopped;
FOLDER/several_tasks.jsonl is kept in results/.
"""

import argparse
import itertools
import random
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from scipy.stats import ttest_ind

from benchmarks.json_lines import as_p, as_table, holm, lines_in, lines_so_far, put
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.search.config import SearchConfig
from flair_nas.search.several_config import settings_class
from flair_nas.search.space import CellSpace
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.settings.resolve import load_preset, resolve
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.training import train_taggers

NAME = "several_tasks.jsonl"
SEEDS = (1, 2, 3, 4, 5)
SEARCHED = ("wnut_17", "conll_2000")
EPOCHS = {"together": 9, "wnut_17": 18, "conll_2000": 7}
"""Epochs of a search. One has 53 steps of each corpus together, and 53 or 125 of one alone."""
TAGGERS: dict[str, dict[str, Any]] = {
    "wnut_17": {"epochs": 15, "patience": 2},
    "conll_2000": {"epochs": 8, "patience": 1},
    "third": {"epochs": 15, "patience": 2},
}
BESIDE = ("rewired", "lstm", "small-relu-tanh")
"""What is trained on the third corpus alone."""
HIDDEN = 64


def run_search(kind: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Search, and return what was found."""
    task = {"objective": "tagging", "data_root": arguments.data_root, "embeddings": arguments.embeddings}
    task |= {"reproject": HIDDEN}
    shared = {"seed": seed, "epochs": EPOCHS[kind]}
    config: Any
    if kind == "together":
        tasks = [{"name": corpus, "corpus": corpus, **task} for corpus in SEARCHED]
        config_type = settings_class("several")
        config = resolve(config_type, kind="search", preset="several-small", flags={"tasks": tasks, **shared})
    else:
        preset = load_preset("search", "several-small", settings_class("several"))
        config = make_settings(settings_class("tagging"), {**preset, **task, **shared, "corpus": kind})
    run = search_genotype(config, arguments.out / f"search-{kind}-{seed}", progress=False)
    seconds = sum(line["cpu_seconds"] for line in run.history)
    return {"kind": kind, "seed": seed, "found": run.genotype.one_line(), "seconds": round(seconds)}


def search(arguments: argparse.Namespace) -> None:
    """Run the searches that are missing."""
    file = arguments.out / NAME
    done = {(line["kind"], line["seed"]) for line in lines_so_far(file) if "found" in line}
    for seed, kind in itertools.product(SEEDS, EPOCHS):
        if (kind, seed) not in done:
            put(run_search(kind, seed, arguments), file)


def rewire(cell: str, seed: int) -> str:
    """Return a cell of the same operations, in random order and with random predecessors."""
    generator = random.Random(seed)
    operations = re.findall("[a-z]+", cell)
    generator.shuffle(operations)
    return "-".join(f"{operation}{generator.randint(0, node)}" for node, operation in enumerate(operations))


def cells(file: Path) -> Iterator[tuple[str, int, str]]:
    """Yield kind, seed and layer of all cells, those of one seed after the other."""
    found = {(line["kind"], line["seed"]): line["found"] for line in lines_in(file) if "found" in line}
    for seed in SEEDS:
        for kind in EPOCHS:
            if (kind, seed) in found:
                yield kind, seed, found[kind, seed]
        yield "random", seed, CellSpace(SearchConfig(text="demo", nodes=8)).draw(seed).one_line()
        if ("together", seed) in found:
            yield "rewired", seed, rewire(found["together", seed], seed)
        for layer in BESIDE[1:]:
            yield layer, seed, layer


def taggers(arguments: argparse.Namespace) -> None:
    """Train the taggers that are missing, those of the third corpus first."""
    file = arguments.out / NAME
    done = {(line["kind"], line["seed"], line["corpus"]) for line in lines_so_far(file) if "test_f1" in line}
    for corpus, (kind, seed, layer) in itertools.product(("third", *SEARCHED), list(cells(file))):
        if (kind, seed, corpus) in done or (corpus != "third" and (seed > 3 or kind in BESIDE)):
            continue
        flags = {"embeddings": arguments.embeddings, "rnn": layer, "seeds": [seed], "hidden_size": HIDDEN}
        flags |= {"learning_rate": 0.2, "anneal_factor": 0.25, **TAGGERS[corpus], "device": "cpu"}
        flags["data_root"] = arguments.data_root
        flags |= {"corpus": arguments.third, "columns": "text=0,ner=3"} if corpus == "third" else {"corpus": corpus}
        folder = arguments.out / f"tagger-{corpus}-{kind}-{seed}"
        metrics = train_taggers(TaggerConfig(**flags), folder)
        seconds = statistics.mean(line["cpu_seconds"] for line in lines_in(folder / f"seed-{seed}" / "history.jsonl"))
        f1 = round(metrics["seeds"][0]["test_f1"], 2)
        put({"kind": kind, "seed": seed, "corpus": corpus, "test_f1": f1, "seconds": round(seconds, 1)}, file)


def compare_with_together(lines: list[dict], kinds: list[str]) -> dict[str, float]:
    """Return the p of each kind against cells searched on both, on the third corpus: Welch's t, corrected by Holm."""

    def scores(kind: str) -> list[float]:
        return [line["test_f1"] for line in lines if line["kind"] == kind and line.get("corpus") == "third"]

    tests = {kind: ttest_ind(scores("together"), scores(kind), equal_var=False) for kind in kinds}
    return holm({kind: float(test.pvalue) for kind, test in tests.items()})


def table() -> str:
    """Return the kept figures as Markdown."""
    lines = lines_in(Path(__file__).parents[1] / "results" / NAME)
    names = {"wnut_17": "WNUT-2017", "conll_2000": "CoNLL-2000", "third": "part of CoNLL-2003, seen by no search"}
    names = {corpus: name for corpus, name in names.items() if any(line.get("corpus") == corpus for line in lines)}
    titles = ["p on the last, by Holm", "CPU s an epoch on the last"]
    rows = [["cells", *(f"{name}, F1" for name in names.values()), *titles]]
    kinds = {"together": "searched on both", "wnut_17": "searched on WNUT-2017"}
    kinds |= {"conll_2000": "searched on CoNLL-2000", "random": "random"}
    kinds |= {"rewired": "searched on both, wired at random", **{layer: f"`{layer}`" for layer in BESIDE[1:]}}
    chances = compare_with_together(lines, [kind for kind in kinds if kind != "together"])
    for kind, title in kinds.items():
        row = [title]
        for corpus in names:
            found = [line for line in lines if line["kind"] == kind and line.get("corpus") == corpus]
            row.append(f"{mean_and_spread([line['test_f1'] for line in found])} ({len(found)})" if found else "-")
        row.append(as_p(chances[kind]).removeprefix("= ") if kind in chances else "-")
        seconds = [line["seconds"] for line in lines if line["kind"] == kind and line.get("corpus") == "third"][:3]
        row.append(f"{statistics.median(seconds):.1f}" if seconds and kind != "rewired" else "-")  # on another machine
        rows.append(row)
    return as_table([row for row in rows if row[1:] != ["-"] * len(row[1:])])


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    for part, action in (("search", search), ("taggers", taggers)):
        adding = parts.add_parser(part)
        adding.add_argument("--data-root", required=True, metavar="DATASETS")
        adding.add_argument("--embeddings", nargs="+", required=True, metavar="NAME")
        adding.add_argument("--out", type=Path, required=True, metavar="FOLDER")
        adding.set_defaults(run=action)
    adding.add_argument("--third", required=True, metavar="DIR")
    parts.add_parser("table").set_defaults(run=lambda _: print(table()))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "out" in arguments:
        arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
