"""Selecting a layer: rungs of successive halving on dev, several seeds of the layer to beat and of the best, then test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of each training
OUT/ledger.json      plan, runs, time spent  OUT/report.md           the answer          OUT/model.pt    its model
"""

from __future__ import annotations

import logging
import math
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.errors import FlairNasError
from flair_nas.files import whole_file, write_text
from flair_nas.rnn_text import say_risks
from flair_nas.runs import Run, open_run
from flair_nas.select.budget import Budget
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    candidates_of,
    is_to_beat,
    matched_lstm,
    named_layers,
    random_layers,
)
from flair_nas.select.config import SelectSettings
from flair_nas.select.ledger import Ledger
from flair_nas.select.report import Answer, answer_of, report_of
from flair_nas.select.rule import Rule
from flair_nas.select.tasks import TAGGING, Task
from flair_nas.select.training import Runs, Wanted
from flair_nas.select.workers import Job, Pool, make_pool
from flair_nas.tagging.config import FLAIR_TYPES

if TYPE_CHECKING:
    from flair_nas.select.ray_pool import RayPool

log = logging.getLogger("flair_nas")

_MAY_CHANGE = (
    *("budget", "candidates", "searches", "search_epochs", "random", "rates", "match", "workers", "device"),
    *("data_root", "text"),  # where data are; what they are is in the ledger
)
_FORMER_RULE = Rule(first=0.2, keep=0.5)  # of taggers, in ledgers that do not tell it


@dataclass(frozen=True)
class Selection:
    """What a selection came to.

    Args:
        answer: which layer, by how much, and how sure that is.
        report: the same and all figures, as Markdown.
        out: the folder.
    """

    answer: Answer
    report: str
    out: Path


def select_layer(config: SelectSettings, out: str | Path, *, progress: bool = False) -> Selection:
    """Compares recurrent layers on a corpus or text within a budget, and trains the best.

    Args:
        config: the settings: a `SelectConfig`, or of texts a `TextSelectConfig`.
        out: a folder that is new or empty, or one of an earlier call: it goes on there, and trains nothing twice, also
            with another budget or more candidates.
        progress: draw a progress bar while words are embedded.

    Raises:
        FlairNasError: settings, corpus or folder that cannot be used; a budget that is too small; no run that worked.
        RunStopped: after Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.
    """
    named_layers(config)  # a bad name should not cost the time that a corpus takes to load
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="selection", command="flair-nas select") as run,
        make_pool(config) as pool,
    ):
        return _Selection(run, pool, progress).run_all()


class _Selection:
    """One selection in its folder."""

    def __init__(self, run: Run, pool: Pool | RayPool, progress: bool) -> None:
        self.run, self.pool, self.progress = run, pool, progress
        self.config: SelectSettings = run.config
        self.task: Task = self.config.task
        self.ledger = Ledger(run.folder / "ledger.json")
        self.runs = Runs(self.config, self.ledger, pool, run.folder / "runs")
        self.budget = Budget(self.runs, self._rule())
        self.cautions: list[str] = []  # that the data are too small to choose on

    def _rule(self) -> Rule:
        """That of the task, or the one that this selection was begun with."""
        ledger = self.ledger
        if not ledger.rule:
            rule = _FORMER_RULE if ledger.runs and self.task is TAGGING else self.task.rule
            ledger.rule = [rule.first, rule.keep]
        return Rule(*ledger.rule)

    def run_all(self) -> Selection:
        self.ledger.begin(self.config.budget)
        data = self._read()  # what is refused leaves no folder behind
        self.run.accept()
        self.runs.folder.mkdir(exist_ok=True)
        try:
            return self._select(self._layers(data))
        except KeyboardInterrupt:
            self.ledger.save()  # with the time that was spent since the last run ended
            raise

    def _select(self, layers: list[Layer]) -> Selection:
        config = self.config
        self.budget.check(layers)
        everyone = candidates_of(config, [*layers, *random_layers(config, self.budget.random(layers))])
        log.info("%d candidates: %s", len(everyone), ", ".join(candidate.name for candidate in everyone))
        finalists, seeds = self.budget.finalists(self._thin_out(everyone))
        wanted = [Wanted(candidate, seed, config.epochs, score=True) for seed in seeds for candidate in finalists]
        names = " and ".join(candidate.name for candidate in finalists)
        self.runs.train(wanted, f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of {names}")
        if not self.runs.is_new:
            log.info("%s is finished, so nothing was trained; --budget, --random or --candidates extend it",
                     self.run.folder)  # fmt: skip
        return self._finish(everyone, finalists, seeds)

    def _thin_out(self, everyone: list[Candidate]) -> list[Candidate]:
        """Those that come to the last epoch with the first seed, the best on dev first."""
        alive, places, rungs = everyone, len(everyone), self.budget.rungs
        for rung, epochs in enumerate(rungs, start=1):
            self.runs.train_first_seeds(alive, epochs, f"rung {rung} of {len(rungs)}")
            found = {c.name: self.runs.cost(c, self.config.seeds[0], epochs) for c in alive}
            costs = {name: cost for name, cost in found.items() if not math.isinf(cost)}
            if not costs:
                raise FlairNasError(f"no run of rung {rung} worked: {self.runs.errors()}")
            if rung < len(rungs):
                places = self.budget.places(rung, places, alive, costs)
                alive = self.budget.going_on(places, alive, costs)
        return sorted((c for c in alive if c.name in costs), key=lambda candidate: costs[candidate.name])

    # --- before ---

    def _read(self) -> Any:
        """The data, with embeddings ready where they can be."""
        config, work = self.config, self.task.work
        data = work.read(config.one())
        self.ledger.check(work.fingerprint(data))
        if shortage := work.shortage(data):
            self.cautions.append(f"{shortage}: which layer is the best on it is mostly chance")
            log.warning("%s", self.cautions[-1])
        work.prepare(config.one(), data, self.progress)
        return data

    def _layers(self, data: Any) -> list[Layer]:
        """The layers that are named, searched, and matched in size."""
        config = self.config
        named = named_layers(config, self.budget.bundled())
        for layer in named:
            say_risks(layer.rnn, FLAIR_TYPES)
        self.budget.check(named)  # before time goes into searches
        layers = [*named, *self._searched()]
        if config.match:
            matched = matched_lstm(config, self.task.work.counter(data), [*layers, *random_layers(config, 1)])
            layers += [matched] if matched else []
        return layers

    def _searched(self) -> list[Layer]:
        """The cells that are searched on the same data; a search that fails is told, and the rest goes on."""
        epochs, runs = self.config.search_epochs, self.ledger.runs
        names = {f"search-{by}-{epochs}-epochs": by for by in self.config.searches}
        jobs = []
        for name, by in names.items():
            if name not in runs:
                (self.run.folder / "searches").mkdir(exist_ok=True)
                folder = str(self.run.folder / "searches" / name)
                jobs.append(Job(name, self.task.work.search, (self.config.search(by), folder)))
        if jobs:
            log.info("%d cells are searched on this %s", len(jobs), self.task.data)
        for outcome in self.pool.run(jobs):
            self.ledger.note(outcome)
        found = {by: runs[name] for name, by in names.items() if "genotype" in runs[name]}
        return [Layer(f"found by {by}", run["genotype"], self.config.hidden_size) for by, run in found.items()]

    # --- after ---

    def _finish(self, everyone: list[Candidate], finalists: list[Candidate], seeds: list[int]) -> Selection:
        def mean(candidate: Candidate) -> float:
            return statistics.mean(self.runs.cost(candidate, seed, self.config.epochs) for seed in seeds)

        ranked = sorted((c for c in finalists if not math.isinf(mean(c))), key=mean)
        if not ranked:
            raise FlairNasError(f"no layer worked with all of its seeds: {self.runs.errors()}")
        others = [c for c in ranked if is_to_beat(c.layer, self.config) != is_to_beat(ranked[0].layer, self.config)]
        compared = [ranked[0], *others[:1]]  # the layer to beat is one of the two
        runs = [[self.runs.of(candidate, seed) for seed in seeds] for candidate in compared]
        answer = answer_of(self.task, compared, runs)
        best = min(seeds, key=lambda seed: self.runs.cost(ranked[0], seed, self.config.epochs))
        source = self.run.folder / "runs" / ranked[0].run(best) / "model.pt"
        with whole_file(self.run.folder / "model.pt") as temporary:
            shutil.copyfile(source, temporary)
        report = report_of(answer, everyone, self.ledger, self.config, [*self.cautions, *self.budget.cautions])
        write_text(self.run.folder / "report.md", report)
        self.ledger.save()
        return Selection(answer, report, self.run.folder)
