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
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.json_lines import lines_in
from benchmarks.search.small_space import FILE
from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.genotype.features import FEATURES
from flair_nas.library.cost_model import FORMAT, VERSION, Array, CostModel, encode
from flair_nas.storage.files import write_text
from flair_nas.storage.resources import resource_path

SHARE = 0.1  # of what the tables tell


def costs_of(table: str, recurrence: str) -> tuple[Array, list[float]]:
    """Return the features of the cells of a table, [cells, features], and their mean final losses over seeds.

    Raises:
        FlairNasError: a loss is not a number.
    """
    cells, costs = [], []
    for line in lines_in(FILE):
        if line.get("table") == table and line.get("recurrence") == recurrence:
            cells.append(replace(Genotype.parse(line["cell"]), recurrence=recurrence))
            costs.append(float(np.mean([seed[-1] for seed in line["costs"]])))
            if not np.isfinite(costs[-1]):
                raise FlairNasError(f"{FILE}: table {table} has no finite loss of {line['cell']}")
    return encode(cells), costs


def make_prior(tables: Iterable[str], share: float = SHARE) -> CostModel:
    """Return the prior that tables give."""
    model = CostModel.empty()
    for table, recurrence in itertools.product(tables, ("full", "elementwise")):
        model = model.learn(*costs_of(table, recurrence)).without_level(1.0)
    return model.without_level(share)


def write(path: Path) -> None:
    """Write the prior of all tables, with six digits."""
    tables = sorted({line["table"] for line in lines_in(FILE) if "about" in line})
    model = make_prior(tables)
    rows = [[float(f"{value:.6g}") for value in row[: place + 1]] for place, row in enumerate(model.precision)]
    data = {"format": FORMAT, "version": VERSION, "tables": tables, "features": [*FEATURES]}
    data |= {"mean": [float(f"{value:.6g}") for value in model.mean], "precision": rows}
    write_text(path, json.dumps(data) + "\n")


def main() -> None:
    """Write the prior."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=resource_path("presets").parent / "cost_prior.json", metavar="FILE")
    write(parser.parse_args().to)


if __name__ == "__main__":
    main()
