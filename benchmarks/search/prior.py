"""What is known of cells before a search: the weights of features that the tables of costs tell.

    python -m benchmarks.search.prior write      # resources/cost_prior.json, from all tables
    python -m benchmarks.search.prior transfer   # how well cells of other sizes are ranked

Each table and recurrence is learnt after the others, on a scale of its own. Then the prior is made less sure, so that
a new search soon learns what is different.
"""

import argparse
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import numpy as np
from scipy.stats import spearmanr

from benchmarks.json_lines import as_table, lines_in
from benchmarks.search.small_space import FILE, SmallSpace
from benchmarks.tables.kept import kept
from benchmarks.tables.showing import make_panels
from flair_nas.errors import FlairNasError
from flair_nas.genotype.features import FEATURES
from flair_nas.library.cost_model import FORMAT, VERSION, Array, CostModel, encode
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.nn.layers import LAYER_NAMES
from flair_nas.storage.files import write_text
from flair_nas.storage.resources import resource_path

SHARE = 0.1  # of what the tables tell


def costs_of(table: str, recurrence: str) -> tuple[Array, list[float]]:
    """Return the features of the cells of a table, [cells, features], and their mean final losses over seeds.

    Raises:
        FlairNasError: a loss is not a number.
    """
    space = SmallSpace(table)
    cells = space.cells(recurrence)
    costs = [space.cost(cell) for cell in cells]
    if not np.isfinite(costs).all():
        raise FlairNasError(f"table {table} has losses that are not finite")
    return encode(cells), costs


def make_prior(tables: Iterable[str], share: float = SHARE) -> CostModel:
    """Return the prior that tables give."""
    model = CostModel.empty()
    for table, recurrence in itertools.product(tables, ("full", "elementwise")):
        model = model.learn(*costs_of(table, recurrence)).without_level(1.0)
    return model.without_level(share)


def transfer() -> str:
    """Return how well what 3 nodes tell ranks other cells, by the rank correlation with their losses, or with F1."""
    models = (make_prior(["demo"]), make_prior(["demo", "ptb"]))
    rows = [["cells", "trained on", "number", "known from the demo text", "from the demo text and the Penn Treebank"]]

    def add(cells: str, where: str, inputs: Array, costs: list[float]) -> None:
        found = (spearmanr(model.predict(inputs), costs).statistic for model in models)
        rows.append([cells, where, str(len(costs)), *(f"{correlation:.2f}" for correlation in found)])

    for recurrence in ("full", "elementwise"):
        add(f"random, 8 nodes, {recurrence}", "Penn Treebank", *costs_of("eight-ptb", recurrence))
    add("published and random", "Penn Treebank", *_costs_in("zoo-small", "PTB"))
    add("published and random", "WNUT-2017", *_costs_in("zoo-small", "WNUT-2017"))
    add("small", "WNUT-2017", *_costs_in("small_cells", "WNUT-2017"))
    return as_table(rows)


def _costs_in(name: str, column: str) -> tuple[Array, list[float]]:
    """Return features and mean costs of the cells of a kept table that have the settings of their column."""
    table, runs = kept(name)
    ((title, figures),) = [(title, rows) for title, rows in make_panels(table, runs).items() if column in title]
    sign = -1 if title.endswith("F1") else 1
    rows = [row for row in table.rows if row.rnn and row.rnn.upper() not in LAYER_NAMES and figures.get(row.name)]
    rows = [row for row in rows if not row.settings and not row.size_of]
    cells = [parse_layer_spec(row.rnn)[0] for row in rows if row.rnn]
    return encode(cells), [sign * mean(figures[row.name]) for row in rows]


def write(path: Path) -> None:
    """Write the prior of all tables, with six digits."""
    tables = sorted({line["table"] for line in lines_in(FILE) if "about" in line})
    model = make_prior(tables)
    rows = [[float(f"{value:.6g}") for value in row[: place + 1]] for place, row in enumerate(model.precision)]
    data = {"format": FORMAT, "version": VERSION, "tables": tables, "features": [*FEATURES]}
    data |= {"mean": [float(f"{value:.6g}") for value in model.mean], "precision": rows}
    write_text(path, json.dumps(data) + "\n")


def main() -> None:
    """Write the prior, or show how it transfers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("write", "transfer"))
    if parser.parse_args().part == "write":
        write(resource_path("presets").parent / "cost_prior.json")
    else:
        print(transfer())


if __name__ == "__main__":
    main()
