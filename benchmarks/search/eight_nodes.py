"""The best strategies of the arena at 8 nodes: search on text, then models of text and tags with what they found.

    python -m benchmarks.search.eight_nodes search --text DIR --out FILE        # DIR is the text of the small space
    python -m benchmarks.search.eight_nodes spec FILE > benchmarks/tables/eight_nodes.yaml   # a row for each cell
    python -m benchmarks.tables run eight_nodes --text PTB --data-root DATASETS --out RUNS --rows ROW ... \\
        --seeds SEED --embeddings word:VECTORS.gensim flair:FORWARD.pt flair:BACKWARD.pt
    python -m benchmarks.search.eight_nodes table                               # the figures as Markdown

A search takes the CPU seconds of 32 trainings of a cell of 8 nodes. It makes these trainings, or trains its supernet,
with the sizes of the small space. The models are those of the tables of small cells, with their seeds, so that
layers of these tables stand beside them: searches of the seeds 1, 2, 3 are trained with the seeds 14, 15, 11.
`search` and the run of a table go on where they were stopped.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.json_lines import as_table, lines_so_far, put
from benchmarks.search.arena import ONE_SHOT, limited
from benchmarks.search.small_space import SETTINGS, STAGES, STEPS
from benchmarks.tables.kept import file_of, lines_of
from benchmarks.tables.spec import load_table
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.search.config import SearchConfig
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings

BUDGET, NODES = 32, 8
ALONE: dict[str, dict[str, Any]] = {
    "local search": {"strategy": "local-search", "child_steps": [STEPS]},
    "evolution": {"strategy": "evolution", "child_steps": [STEPS], "population": 8, "tournament": 3},
    "random": {"strategy": "random-independent", "samples": BUDGET},
}
SUPERNETS = {name: ONE_SHOT[name] for name in ("DARTS",)}
TRAINED_WITH = {1: 14, 2: 15, 3: 11}
"""Seed of the models with what the search of a seed found."""
TABLES = {"PTB": "small_cells_ptb", "WNUT-2017": "small_cells"}
"""The table of small cells with the same models, by column."""
BESIDE = ("darts-v1", "relu0-tanh1", "tanh0", "LSTM")


def one_search(name: str, seed: int, text: str, steps: int) -> dict[str, Any]:
    """Search, and return what was found."""
    strategy = (ALONE | SUPERNETS)[name]
    left_out = {"strategy", "samples"} | ({"init_range"} if name in SUPERNETS else set())
    settings = {key: value for key, value in SETTINGS.items() if key not in left_out} | {"nodes": NODES}
    config = make_settings(SearchConfig, {"text": text, "seed": seed, **settings, **strategy})
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = search_genotype(config, Path(folder) / "run", objective=limited(config, steps), progress=False)
    seconds = round(time.process_time() - start, 1)
    return {"name": name, "seed": seed, "found": run.genotype.one_line(), "steps": steps * STAGES, "seconds": seconds}


def found_in(file: Path) -> list[dict[str, Any]]:
    """Return the searches of a file, which may hold models, too."""
    return [line for line in lines_so_far(file) if "found" in line]


def search(arguments: argparse.Namespace) -> None:
    """Run the searches that FILE does not have; supernets as long as the local search of the first seed."""
    torch.set_num_threads(1)
    lines = found_in(arguments.out)
    done = {(line["name"], line["seed"]): line for line in lines}
    limits = {line["name"]: line["steps"] // STAGES for line in lines} | dict.fromkeys(ALONE, BUDGET * STEPS // STAGES)
    for seed, name in itertools.product(TRAINED_WITH, arguments.names):
        if (name, seed) in done:
            continue
        while True:
            line = one_search(name, seed, str(arguments.text), limits.setdefault(name, 100))
            wanted = done["local search", 1]["seconds"] if name in SUPERNETS else line["seconds"]
            if abs(line["seconds"] / wanted - 1) < 0.15:
                break
            limits[name] = round(limits[name] * wanted / line["seconds"])
        put(line, arguments.out)
        done[name, seed] = line


def spec(arguments: argparse.Namespace) -> None:
    """Print the table of the models, as JSON, which is YAML."""
    alike = [load_table(kept).columns[0] for kept in TABLES.values()]
    columns = {column.name: {column.task: column.settings} for column in alike}
    rows = {f"{line['name']}, search {line['seed']}": {"rnn": line["found"]} for line in found_in(arguments.file)}
    print(json.dumps({"title": "Cells of 8 nodes", "seeds": [14, 15, 11], "columns": columns, "rows": rows}, indent=1))


def found_figures() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the finished models with what searches found: strategy, column and figures."""
    for line in lines_of("eight_nodes"):
        if "test" in line:
            yield line["row"].partition(", search ")[0], line["column"], line


def other_figures(column: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the finished models of a table of small cells with the same seeds, each with the name of its row."""
    lines = [line for line in lines_of(TABLES[column]) if line.get("seed") in TRAINED_WITH.values() and "test" in line]
    for row in BESIDE:
        for line in lines:
            if (line["row"], line["column"]) == (row, column):
                yield row, line


def table() -> str:
    """Return the figures as Markdown."""
    models: dict[str, dict[str, list[dict]]] = {}
    for strategy, column, run in found_figures():
        models.setdefault(strategy, {}).setdefault(column, []).append(run)
    for column in TABLES:
        for row, run in other_figures(column):
            models.setdefault(row, {}).setdefault(column, []).append(run)
    seconds: dict[str, list[float]] = {}
    for line in found_in(file_of("eight_nodes")):
        seconds.setdefault(line["name"], []).append(line["seconds"])
    rows = [["found by, or layer", "CPU seconds a search", "PTB perplexity", "WNUT-2017 F1"]]
    for name, columns in models.items():
        row = [name, f"{statistics.mean(seconds[name]):.0f}" if name in seconds else "-"]
        for column in TABLES:
            values = [run["test"] for run in columns.get(column, [])]
            row.append(f"{mean_and_spread(values)} ({len(values)})" if values else "-")
        rows.append(row)
    return as_table(rows)


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    part = parts.add_parser("search")
    part.add_argument("names", nargs="*", default=[*ALONE, *SUPERNETS], metavar="NAME")
    part.add_argument("--text", type=Path, required=True, metavar="DIR")
    part.add_argument("--out", type=Path, required=True, metavar="FILE")
    part.set_defaults(run=search)
    part = parts.add_parser("spec")
    part.add_argument("file", type=Path, metavar="FILE")
    part.set_defaults(run=spec)
    parts.add_parser("table").set_defaults(run=lambda _: print(table()))
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
