"""The small space: cells of 3 nodes whose costs are known, so that a strategy is judged in seconds.

It has all 384 cells of 3 nodes with one edge a node, with a full and with an elementwise recurrence. Each was trained
as a language model, with several seeds; ``benchmarks/small_space.py`` makes the tables.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.genotype import OPERATIONS, Edge, Genotype
from flair_nas.language_model.perplexity import PERPLEXITY
from flair_nas.runs.metric import Evaluation
from flair_nas.search.protocols import Batch, Objective
from flair_nas.search.registry import strategy_settings
from flair_nas.storage.resources import resource_path

NODES = 3
VERSION = 1
"""Version of the tables' files."""
TABLES = ("ptb", "demo")
"""Texts of the bundled tables: part of the Penn Treebank, and the bundled demo text."""


def all_cells(recurrence: str = "full") -> list[Genotype]:
    """Return the 384 cells of the space, in a fixed order.

    Args:
        recurrence: ``full`` or ``elementwise``.
    """
    edges = [[Edge(op, tail) for tail in range(node) for op in OPERATIONS[1:]] for node in range(1, NODES + 1)]
    return [
        Genotype(nodes=tuple((edge,) for edge in cell), recurrence=recurrence) for cell in itertools.product(*edges)
    ]


class SmallSpace:
    """A table of what each cell of the small space costs.

    Args:
        table: ``ptb`` or ``demo``, or the file of a table that ``benchmarks/small_space.py`` wrote.

    Attributes:
        digest: SHA-256 of the table's file.
        steps: training steps at which costs are known, rising; the last is the end of the training.
        seeds: seeds of the trainings.
        about: how the table was made.

    Raises:
        FlairNasError: an unknown table, or one that is damaged or of another version.
    """

    def __init__(self, table: str | Path = "ptb") -> None:
        path = Path(table)
        if path.name == str(table) and not path.suffix:
            if table not in TABLES:
                hint = did_you_mean(str(table), TABLES)
                raise FlairNasError(f"unknown table {table!r}; {hint}there are {', '.join(TABLES)}")
            path = resource_path("small_space", f"{table}.json")
        data, self.digest = _read(path)
        self.about: dict[str, Any] = data["about"]
        self.steps: list[int] = data["steps"]
        self.seeds: list[int] = data["seeds"]
        self._costs: dict[str, dict[str, list[list[float]]]] = data["costs"]  # by recurrence and genotype, [seed][step]

    def cost(self, genotype: Genotype, step: int | None = None, seed: int | None = None) -> float:
        """Return the valid loss of a cell, in nats a word.

        Args:
            genotype: a cell of the space.
            step: the training step at which it is looked at; by default the last one.
            seed: the seed of the training; by default the mean over all.

        Raises:
            FlairNasError: a genotype outside the space, or a step or seed that the table has not.
        """
        rows = self._costs[genotype.recurrence].get(genotype.one_line())
        if rows is None or genotype.options != Genotype(genotype.nodes, recurrence=genotype.recurrence).options:
            raise FlairNasError(
                f"{genotype.one_line()} is not in the small space: cells of {NODES} nodes, one edge each"
            )
        column = self._place(self.steps, self.steps[-1] if step is None else step, "step")
        if seed is not None:
            return rows[self._place(self.seeds, seed, "seed")][column]
        return sum(row[column] for row in rows) / len(rows)

    def rank(self, genotype: Genotype) -> float:
        """Return the share of the cells with the same recurrence that are better in the end, 0 for the best."""
        own, cells = self.cost(genotype), self._costs[genotype.recurrence]
        return sum(sum(row[-1] for row in rows) / len(rows) < own for rows in cells.values()) / len(cells)

    @staticmethod
    def _place(known: Sequence[int], wanted: int, what: str) -> int:
        if wanted not in known:
            raise FlairNasError(f"the table has no {what} {wanted}; it has {', '.join(map(str, known))}")
        return known.index(wanted)


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """Read a table; return it with the digest of its file.

    Raises:
        FlairNasError: it is missing, damaged, or of another version.
    """
    advice = "reinstall flair-nas, or make it again with benchmarks/small_space.py"
    try:
        content = path.read_bytes()
        data = json.loads(content)
    except OSError as error:
        raise FlairNasError(f"cannot read the table {path}: {error.strerror}") from None
    except ValueError as error:
        raise FlairNasError(f"{path} is damaged ({error}): {advice}") from None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise FlairNasError(f"{path} is no table of version {VERSION}: {advice}")
    if missing := {"about", "steps", "seeds", "costs"} - data.keys():
        raise FlairNasError(f"{path} lacks {', '.join(sorted(missing))}: {advice}")
    shape = len(data["seeds"]), len(data["steps"])
    for recurrence in ("full", "elementwise"):
        costs = data["costs"].get(recurrence, {})
        if [*costs] != [cell.one_line() for cell in all_cells(recurrence)]:
            raise FlairNasError(f"{path} has not all {recurrence} cells of the small space: {advice}")
        if any(len(rows) != shape[0] or any(len(row) != shape[1] for row in rows) for rows in costs.values()):
            raise FlairNasError(f"{path} lacks costs of some cells, seeds or steps: {advice}")
    return data, hashlib.sha256(content).hexdigest()


class TableObjective(Objective):
    """Objective whose losses come from a table, for `search_genotype(..., objective=...)`: nothing is trained.

    A step of the search stands for the training between two columns of the table. It works with strategies that train
    each candidate on its own: random-independent, evolution and local-search.

    Args:
        space: the table.
        seed: the seed of the trainings whose losses the search sees.
        steps: number of steps of an epoch; each epoch writes a checkpoint.
    """

    metric = PERPLEXITY

    def __init__(self, space: SmallSpace, seed: int, steps: int = 8) -> None:
        self.space, self.seed, self.steps_of_epoch = space, seed, steps
        self.name = f"small space, seed {seed}"
        self.fingerprint = f"{space.digest}, seed {seed}"
        self.module = self.supernet = _Looked()  # type: ignore[assignment]

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.steps_of_epoch

    def training_batch(self, epoch: int, step: int) -> Batch:
        """Return a batch of one part, without data."""
        return Batch([None])

    validation_batch = training_batch

    def training_loss(self, part: None, keep_state: bool = False) -> Tensor:
        """Count a step of the present cell; return a loss that depends on no weight."""
        self.module.looks += 1
        return self.module.weight.sum() * 0

    def validation_loss(self, part: None, keep_state: bool = False) -> Tensor:
        """Refuse: a table has no losses of a supernet.

        Raises:
            FlairNasError: always.
        """
        _refuse()

    def evaluate(self) -> Evaluation:
        """Return the loss of the present cell after its steps; beyond the table, that of the last column."""
        column = min(int(self.module.looks), len(self.space.steps)) - 1
        if column < 0 or self.module.cell is None:
            return Evaluation(math.inf, math.inf)
        loss = self.space.cost(self.module.cell, self.space.steps[column], self.seed)
        return Evaluation(loss, PERPLEXITY.from_cost(loss))


def _refuse() -> NoReturn:
    alone = [name for name, own in strategy_settings().items() if own.trained_alone]
    raise FlairNasError(f"a table works with the strategies {', '.join(alone)} alone")


class _Looked(nn.Module):
    """Model without weights to learn: the cell that is looked at, and the number of its steps."""

    looks: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("looks", torch.zeros((), dtype=torch.long))
        self.cell: Genotype | None = None

    def choose(self, genotype: Genotype | None) -> None:
        """Look at a cell."""
        self.cell = genotype

    def architecture(self) -> dict[str, list[nn.Parameter]]:
        """Return nothing: there are no architecture weights."""
        return _NoGroups()


class _NoGroups(dict[str, list[nn.Parameter]]):
    """Groups of architecture weights, of which there are none; to ask for one is an error."""

    def __missing__(self, name: str) -> list[nn.Parameter]:
        _refuse()
