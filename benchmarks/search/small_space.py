"""The small space: cells of 3 nodes whose costs are known, so that a search strategy is judged in seconds.

It has all 384 cells of 3 nodes with one edge a node, with a full and with an elementwise recurrence.

    python -m benchmarks.search.small_space train --out FILE [--seeds 1,2,3]    # on the bundled text
    python -m benchmarks.search.small_space train --text DIR --out FILE         # DIR has train.txt and valid.txt
    python -m benchmarks.search.small_space train --nodes 8 --cells 40 ...      # random cells of other sizes
    python -m benchmarks.search.small_space bundle demo FILE ...                # FILE as a kept table
    python -m benchmarks.search.small_space signal demo                         # how much the table tells
    python -m benchmarks.search.small_space some --text DIR --out FILE          # some cells, eight times as long

A cell is the language model of a search on text, H = D = 48, batches of 32 x 35 words, the 1,000 most frequent types.
It makes 160 steps of SGD, whose rate falls from 10 to 0 along a cosine in eight stages, and is evaluated after each
stage on the valid part (of the Penn Treebank its first 1,000 lines). All cells of a seed begin with the same weights
and read the same text. About 3 CPU seconds a cell, 40 minutes for a seed of both recurrences. A call goes on where
the last one stopped.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from benchmarks.json_lines import RESULTS, as_table, lines_in, lines_so_far, put, replace_lines
from flair_nas.cli.version import describe
from flair_nas.errors import FlairNasError
from flair_nas.genotype import OPERATIONS, Edge, Genotype, random_genotype
from flair_nas.runs.metric import PERPLEXITY, Evaluation
from flair_nas.search.bilevel import ModelOptimizer
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives.text import build, read
from flair_nas.search.processes import make_accelerator
from flair_nas.search.protocols import Batch, Objective
from flair_nas.search.registry import strategy_settings
from flair_nas.settings.fields import make_settings

STAGES, STEPS = 8, 160
NODES = 3
FILE = RESULTS / "small_space.jsonl"
SETTINGS: dict[str, Any] = {
    "strategy": "random-shared",  # whose supernet runs one cell at a time
    "samples": 1,
    "nodes": 3,
    "hidden_size": 48,
    "batch_size": 32,
    "bptt": 35,
    "vary_length": False,
    "vocabulary_size": 1000,
    "epochs": STAGES,
    "schedule": "cosine",
    "learning_rate": 10.0,
    "weight_decay": 5e-7,
    "clip": 0.25,
    "dropout": 0.1,
    "input_dropout": 0.1,
    "recurrent_dropout": 0.05,
    "embedding_dropout": 0.05,
    "slowness": 0.0,
    "init_range": 0.25,
    "device": "cpu",
}


def all_cells(recurrence: str = "full") -> list[Genotype]:
    """Return the 384 cells of the space, in a fixed order.

    Args:
        recurrence: ``full`` or ``elementwise``.
    """
    edges = [[Edge(op, tail) for tail in range(node) for op in OPERATIONS[1:]] for node in range(1, NODES + 1)]
    return [
        Genotype(nodes=tuple((edge,) for edge in cell), recurrence=recurrence) for cell in itertools.product(*edges)
    ]


def drawn_cells(recurrence: str, sizes: Sequence[int], count: int) -> list[Genotype]:
    """Return so many random cells of each size."""
    drawn = (random_genotype(1000 * size + number, nodes=size) for size in sizes for number in range(count))
    return [dataclasses.replace(cell, recurrence=recurrence, origin={}) for cell in drawn]


class SmallSpace:
    """A table of what each cell of the small space costs.

    Args:
        table: ``ptb``, of part of the Penn Treebank, or ``demo``, of the bundled demo text.
        file: the file of the table.

    Attributes:
        digest: SHA-256 of the table.
        steps: training steps at which costs are known, rising; the last is the end of the training.
        seeds: seeds of the trainings.
    """

    def __init__(self, table: str = "ptb", file: Path = FILE) -> None:
        head, *cells = (line for line in lines_in(file) if line.get("table") == table)
        self.digest = hashlib.sha256(json.dumps([head, *cells]).encode()).hexdigest()
        self.steps: list[int] = head["steps"]
        self.seeds: list[int] = head["seeds"]
        self._costs: dict[str, dict[str, list[list[float]]]] = {"full": {}, "elementwise": {}}
        for line in cells:
            self._costs[line["recurrence"]][line["cell"]] = line["costs"]  # [seed][step]

    def cells(self, recurrence: str) -> list[Genotype]:
        """Return the cells of the table with a recurrence."""
        lines = self._costs[recurrence]
        return [dataclasses.replace(Genotype.parse(line), recurrence=recurrence) for line in lines]

    def cost(self, genotype: Genotype, step: int | None = None, seed: int | None = None) -> float:
        """Return the valid loss of a cell, in nats a word.

        Args:
            genotype: a cell of the space.
            step: the training step at which it is looked at; by default the last one.
            seed: the seed of the training; by default the mean over all.
        """
        rows = self._costs[genotype.recurrence][genotype.one_line()]
        column = -1 if step is None else self.steps.index(step)
        if seed is not None:
            return rows[self.seeds.index(seed)][column]
        return sum(row[column] for row in rows) / len(rows)

    def rank(self, genotype: Genotype) -> float:
        """Return the share of the cells with the same recurrence that are better in the end, 0 for the best."""
        own, cells = self.cost(genotype), self._costs[genotype.recurrence]
        return sum(sum(row[-1] for row in rows) / len(rows) < own for rows in cells.values()) / len(cells)


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
        """Refuse: a table has no losses of a supernet."""
        _refuse()

    def evaluate(self) -> Evaluation:
        """Return the loss of the present cell after its steps; beyond the table, that of the last column."""
        column = min(int(self.module.looks), len(self.space.steps)) - 1
        if column < 0 or self.module.cell is None:
            return Evaluation(math.inf, math.inf)
        loss = self.space.cost(self.module.cell, self.space.steps[column], self.seed)
        return Evaluation(loss, PERPLEXITY.from_cost(loss))


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

    def batch_statistics(self) -> NoReturn:
        """Refuse: a table has no losses of a supernet."""
        _refuse()

    def architecture(self) -> dict[str, list[nn.Parameter]]:
        """Return nothing: there are no architecture weights."""
        return _NoGroups()


class _NoGroups(dict[str, list[nn.Parameter]]):
    """Groups of architecture weights, of which there are none; to ask for one is an error."""

    def __missing__(self, name: str) -> list[nn.Parameter]:
        _refuse()


def _refuse() -> NoReturn:
    alone = [name for name, own in strategy_settings().items() if own.trained_alone]
    raise FlairNasError(f"a table works with the strategies {', '.join(alone)} alone")


def trainings(
    text: str, seed: int, recurrence: str, cells: Sequence[Genotype], steps: int = STEPS, schedule: str = "cosine"
) -> Iterator[dict]:
    """Train cells of equally many nodes with a seed; yield a line for each."""
    own = {"text": text, "seed": seed, "recurrence": recurrence, "schedule": schedule, "nodes": len(cells[0].nodes)}
    config = make_settings(SearchConfig, {**SETTINGS, **own})
    objective = build(config, read(config), make_accelerator("cpu", "float32"))
    first = {name: value.clone() for name, value in objective.module.state_dict().items()}
    optimizer = ModelOptimizer(objective, config)
    for cell in cells:
        objective.supernet.choose(cell)
        objective.module.load_state_dict(first)
        objective.restart()
        start, costs = time.process_time(), []
        generator = torch.random.get_rng_state()
        for stage in range(STAGES):
            objective.module.train()
            for step in range(stage * steps // STAGES, (stage + 1) * steps // STAGES):
                epoch, place = divmod(step, objective.steps(1))
                optimizer.step(stage + 1, step, objective.training_batch(epoch + 1, place))
            costs.append(round(objective.evaluate().loss, 4))
        torch.random.set_rng_state(generator)  # all cells have the same dropout
        seconds = round(time.process_time() - start, 2)
        yield {"cell": cell.one_line(), "recurrence": recurrence, "seed": seed, "costs": costs, "seconds": seconds}


def train(arguments: argparse.Namespace) -> None:
    """Train all cells that FILE does not have yet."""
    known = {(line["recurrence"], line["seed"], line["cell"]) for line in lines_so_far(arguments.out)}
    torch.set_num_threads(1)
    for seed, recurrence in itertools.product(arguments.seeds, ("full", "elementwise")):
        cells = drawn_cells(recurrence, arguments.nodes, arguments.cells) if arguments.nodes else all_cells(recurrence)
        left = [cell for cell in cells if (recurrence, seed, cell.one_line()) not in known]
        for _, group in itertools.groupby(left, key=lambda cell: len(cell.nodes)):
            for line in trainings(arguments.text, seed, recurrence, [*group]):
                put(line, arguments.out)


def bundle(arguments: argparse.Namespace) -> None:
    """Keep the table of files of lines."""
    lines = [line for file in arguments.files for line in lines_in(file)]
    found = {(line["recurrence"], line["cell"], line["seed"]): line["costs"] for line in lines}
    counts, cells = Counter(seed for _, _, seed in found), {(recurrence, cell): None for recurrence, cell, _ in found}
    whole = len(cells) if any(cell.count("-") != NODES - 1 for _, cell in cells) else 2 * len(all_cells())
    seeds = sorted(seed for seed, count in counts.items() if count == whole)
    if left_out := counts.keys() - seeds:
        print(f"left out, as not all cells are trained: seeds {', '.join(map(str, sorted(left_out)))}")
    about = {"text": arguments.text_name, "settings": SETTINGS, "setup": describe()[:4]}
    about["seconds"] = statistics.mean(line["seconds"] for line in lines)
    steps = [(stage + 1) * STEPS // STAGES for stage in range(STAGES)]
    table = [{"table": arguments.table, "about": about, "steps": steps, "seeds": seeds}]
    for recurrence, cell in cells:
        costs = [found[recurrence, cell, seed] for seed in seeds]
        table.append({"table": arguments.table, "recurrence": recurrence, "cell": cell, "costs": costs})
    replace_lines(FILE, table, lambda line: line.get("table") == arguments.table)


def signal(table: str) -> str:
    """Return how much a table tells, as Markdown."""
    space = SmallSpace(table)
    head = ["recurrence", "best", "tenth", "median", "worst", "rank correlation of two seeds", "of a look with the end"]
    rows = [head]
    for recurrence in ("full", "elementwise"):
        cells = all_cells(recurrence)
        costs = sorted((space.cost(cell), cell.one_line()) for cell in cells)
        of_seeds = [[space.cost(cell, seed=seed) for cell in cells] for seed in space.seeds]
        pairs = [spearmanr(a, b).statistic for a, b in itertools.combinations(of_seeds, 2)]
        looks = []
        for step in space.steps[:-1]:
            early = ([space.cost(cell, step, seed) for cell in cells] for seed in space.seeds)
            looks.append(statistics.mean(spearmanr(*pair).statistic for pair in zip(early, of_seeds)))
        best, tenth, median, worst = (costs[place] for place in (0, 9, len(costs) // 2, -1))
        row = [recurrence, f"{best[0]:.3f} (`{best[1]}`)", *(f"{cost:.3f}" for cost, _ in (tenth, median, worst))]
        row.append(f"{min(pairs):.2f} to {max(pairs):.2f}" if pairs else "-")
        row.append(", ".join(f"{step}: {look:.2f}" for step, look in zip(space.steps, looks)))
        rows.append(row)
    return as_table(rows)


def some(arguments: argparse.Namespace) -> None:
    """Train every 16th cell in another way, and compare the order with that of the table."""
    setting = {"steps": arguments.steps, "schedule": arguments.schedule}
    known = {
        (line["seed"], line["cell"]): line for line in lines_so_far(arguments.out) if setting.items() <= line.items()
    }
    torch.set_num_threads(1)
    cells = all_cells()[::16]
    for seed in arguments.seeds:
        left = [cell for cell in cells if (seed, cell.one_line()) not in known]
        for line in trainings(str(arguments.text), seed, "full", left, **setting) if left else ():
            put(line | setting, arguments.out)
            known[seed, line["cell"]] = line
    orders = [[known[seed, cell.one_line()]["costs"][-1] for cell in cells] for seed in arguments.seeds]
    table = [SmallSpace("ptb").cost(cell) for cell in cells]
    between = [f"{spearmanr(a, b).statistic:.2f}" for a, b in itertools.combinations(orders, 2)]
    with_table = [f"{spearmanr(order, table).statistic:.2f}" for order in orders]
    print(f"rank correlations of {len(cells)} cells: between seeds {between}, with the table {with_table}")


def numbers(text: str) -> list[int]:
    """Read numbers that commas separate."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True, metavar="PART")
    part = parts.add_parser("train", help="train the cells of a table")
    part.add_argument("--text", default="demo", metavar="DIR", help="text (default: demo)")
    part.add_argument("--out", type=Path, required=True, metavar="FILE")
    part.add_argument("--seeds", type=numbers, default=[1, 2, 3], metavar="1,2,3")
    part.add_argument("--nodes", type=numbers, metavar="2,4", help="random cells with so many nodes, in place of all")
    part.add_argument("--cells", type=int, default=40, help="of each number of nodes (default: 40)")
    part.set_defaults(run=train)
    part = parts.add_parser("bundle", help="keep a table")
    part.add_argument("table")
    part.add_argument("files", type=Path, nargs="+", metavar="FILE")
    part.add_argument("--text-name", default="the bundled demo text", help="where the text is from, for the table")
    part.set_defaults(run=bundle)
    part = parts.add_parser("signal", help="print how much a table tells")
    part.add_argument("table")
    part.set_defaults(run=lambda arguments: print(signal(arguments.table)))
    part = parts.add_parser("some", help="train every 16th cell in another way")
    part.add_argument("--text", type=Path, required=True, metavar="DIR")
    part.add_argument("--out", type=Path, required=True, metavar="FILE")
    part.add_argument("--steps", type=int, default=8 * STEPS, help=f"(default: {8 * STEPS})")
    part.add_argument("--schedule", choices=("cosine", "constant"), default="cosine")
    part.add_argument("--seeds", type=numbers, default=[1, 2], metavar="1,2")
    part.set_defaults(run=some)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
