"""Selecting a layer: rungs of successive halving on dev, several seeds of the best, then fresh ones, scored on test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of each training
OUT/ledger.json      plan, runs, time spent  OUT/report.md           the answer
OUT/model.pt         its model               OUT/model.safetensors   and config.json: a tagger's as data
"""

from __future__ import annotations

import logging
import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.experiments.successive_halving import Rule
from flair_nas.experiments.tasks import TAGGING, Task
from flair_nas.library.layer_spec import say_risks
from flair_nas.runs.duration import duration
from flair_nas.runs.run import Run, open_run
from flair_nas.select.budget import Budget
from flair_nas.select.candidates import Candidate, Layer, candidates_of, matched_lstm, named_layers, random_layers
from flair_nas.select.config import SelectSettings
from flair_nas.select.report import Answer, answer_of, report_of
from flair_nas.select.runs import Runs, wanted_of
from flair_nas.storage.files import write_text
from flair_nas.tagging.config import FLAIR_TYPES

log = logging.getLogger("flair_nas")

_MAY_CHANGE = (
    *("budget", "candidates", "searches", "search_epochs", "random", "rates", "match", "fresh_seeds"),
    *("workers", "device"),
    *("data_root", "text", "delimiter", "comment"),  # where and how data are read; a digest is in the ledger
)
_FORMER_RULE = Rule(first=0.2, keep=0.5)  # of taggers, in ledgers that do not tell it


def _listed(names: list[str], most: int = 12) -> str:
    further = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + further


def _counted(seeds: list[int], which: str = "") -> str:
    return f"{len(seeds)} {which}seed{'s' * (len(seeds) != 1)}"


def _rule_of(ledger: Ledger, task: Task) -> Rule:
    """Return the rule that a selection was begun with, or that of the task for a new one."""
    if not ledger.rule:
        rule = _FORMER_RULE if ledger.runs and task is TAGGING else task.rule
        ledger.rule = [rule.first, rule.keep]
    return Rule(*ledger.rule)


@dataclass(frozen=True)
class Selection:
    """What a selection came to.

    Args:
        answer: which layer, by how much, and how sure that is.
        report: the same and all figures, as Markdown.
        out: the folder.
        config: the settings, after what the budget had no time for was left out.
    """

    answer: Answer
    report: str
    out: Path
    config: SelectSettings


def select_layer(config: SelectSettings, out: str | Path, *, progress: bool = False) -> Selection:
    """Compares recurrent layers on a corpus or text within a budget, and trains the best.

    Args:
        config: the settings: a `SelectConfig`, or of texts a `TextSelectConfig`.
        out: a folder that is new or empty, or one of an earlier call: it goes on there, and trains nothing twice, also
            with another budget or more candidates.
        progress: draw a progress bar while words are embedded.

    Raises:
        FlairNasError: settings, corpus or folder that cannot be used; a budget that is too small for two layers with
            one learning rate and the epochs of the first rung; no run that worked.
        RunStopped: after Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.
    """
    not_while_imported()
    for layer in named_layers(config):  # a bad name should not cost the time that a corpus takes to load
        say_risks(layer.rnn, FLAIR_TYPES)
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="selection", command="flair-nas select") as run,
        make_pool(config) as pool,
    ):
        return _Selection(run, pool, progress).run_all()


def estimate_selection(config: SelectSettings, out: str | Path | None = None) -> list[str]:
    """Say within seconds what `select_layer` would compare; nothing is trained, and no folder is made.

    Args:
        config: the settings.
        out: the folder of an earlier call.

    Raises:
        FlairNasError: settings or corpus that cannot be used; a budget that is too small.
    """
    not_while_imported()
    named_layers(config)
    with make_pool(config) as pool, tempfile.TemporaryDirectory() as empty:
        ledger, work = Ledger((Path(empty) if out is None else Path(out)) / "ledger.json"), config.task.work
        ledger.begin(config.budget)
        ledger.check(work.fingerprint(work.read(config.one())))
        budget = Budget(Runs(config, ledger, pool, Path(empty)), _rule_of(ledger, config.task)).fitted()
        bundled = budget.bundled()
        names = list(dict.fromkeys(candidate.layer.name for candidate in budget.named(bundled)))
        later = len(budget.runs.to_search()) + (budget.config.match and not budget.runs.matched())
        rates = ", ".join(f"{budget.config.learning_rate * rate:g}" for rate in budget.config.rates)
        pace, embedding = budget.pace(), budget.runs.embedding_seconds
        return [
            f"an epoch takes about {pace.epoch:.1f} s"
            + f", to embed all words {duration(embedding)}" * (embedding > 1),
            *budget.cautions,
            f"compared within {config.budget}: {_listed(names)}"
            + ", and as many random cells as there is time for" * (budget.config.random is None)
            + f", and {later} more, searched or of equal size" * (later > 0)
            + f"; learning rates {rates}; {budget.config.epochs} epochs",
        ]


class _Selection:
    """One selection in its folder."""

    def __init__(self, run: Run, pool: Pool, progress: bool) -> None:
        self.run, self.pool, self.progress = run, pool, progress
        self.config: SelectSettings = run.config
        self.task: Task = self.config.task
        self.ledger = Ledger(run.folder / "ledger.json")
        self.runs = Runs(self.config, self.ledger, pool, run.folder / "runs")
        self.budget = Budget(self.runs, _rule_of(self.ledger, self.task))
        self.cautions: list[str] = []  # that the data are too small to choose on

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
        everyone = candidates_of(config, [*layers, *random_layers(config, self.budget.random(layers))])
        if left_out := self.runs.others(everyone):
            more = "--candidates, --searches, --random, --rates and --match say what is"
            self.cautions.append(f"trained earlier, and not compared now: {_listed(left_out)}; {more}")
            log.warning("%s", self.cautions[-1])
        log.info("%d candidates: %s", len(everyone), _listed([candidate.name for candidate in everyone]))
        compared, chose = self._choose(self._thin_out(everyone))
        fresh = self._judge(compared)
        judges = fresh or self._judge_by_those_that_chose(compared, chose)
        if not self.runs.is_new:
            more = "--budget, --random, --candidates or --fresh-seeds extend it"
            log.info("%s is finished, so nothing was trained; %s", self.run.folder, more)
        runs = [[self.runs.of(candidate, seed) for seed in judges] for candidate in compared]
        answer = answer_of(self.task, compared, runs, judges, fresh=bool(fresh))
        return self._finish(everyone, answer, [*chose, *fresh])

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

    def _choose(self, ranked: list[Candidate]) -> tuple[list[Candidate], list[int]]:
        """The layer to beat with its best rate, and the best of the others, by dev; and the seeds that say so."""
        config = self.config
        finalists, seeds = self.budget.finalists(ranked)
        names = " and ".join(candidate.name for candidate in finalists)
        self.runs.train(wanted_of(finalists, seeds, config.epochs), f"{_counted(seeds)} of {names} choose")
        costs = {c: [self.runs.cost(c, seed, config.epochs) for seed in seeds] for c in finalists}
        # a seed with which all have failed says nothing of any
        chose = [at for at in range(len(seeds)) if not all(math.isinf(of[at]) for of in costs.values())]
        means = {c: statistics.mean(of[at] for at in chose) for c, of in costs.items()}
        best = sorted((c for c in finalists if not math.isinf(means[c])), key=lambda c: means[c])
        if not best:
            raise FlairNasError(f"no layer worked with all of its seeds: {self.runs.errors()}")
        return [group[0] for group in self.budget.groups(best)], [seeds[at] for at in chose]

    def _judge(self, compared: list[Candidate]) -> list[int]:
        """The seeds that took no part in the choice and have scored both; none if there was no time for one."""
        config = self.config
        names = " and ".join(candidate.name for candidate in compared)
        seeds = self.budget.fresh(compared)
        wanted = wanted_of(compared, seeds, config.epochs, score=True)
        self.runs.train(wanted, f"{_counted(seeds, 'fresh ')} of {names}", self.budget.end)
        scored = self._scored(compared, config.fresh())
        failed = {c.run(seed): seed for seed in config.fresh() for c in compared if self.runs.has_failed(c, seed)}
        if failed:
            self.cautions.append(f"{' and '.join(failed)} failed, so what the other has with that seed does not count")
        if len({*scored, *failed.values()}) < config.fresh_seeds:
            self.cautions.append(f"there was time for {len(scored)} of {config.fresh_seeds} fresh seeds")
        return scored

    def _judge_by_those_that_chose(self, compared: list[Candidate], chose: list[int]) -> list[int]:
        """The seeds that chose and have scored both."""
        self.cautions.append("the seeds that chose judge, too, which flatters the winner")
        self.runs.train(wanted_of(compared, chose, self.config.epochs, score=True), "their score")
        scored = self._scored(compared, chose)
        if not scored:
            raise FlairNasError(f"no layer could be scored: {self.runs.errors()}")
        return scored

    def _scored(self, compared: list[Candidate], seeds: list[int]) -> list[int]:
        return [seed for seed in seeds if all("counts" in self.runs.of(c, seed) for c in compared)]

    # --- before ---

    def _read(self) -> Any:
        """The data, with embeddings ready where they can be."""
        config, work = self.config, self.task.work
        data = work.read(config.one())
        self.ledger.check(work.fingerprint(data))
        if shortage := work.shortage(data):
            self.cautions.append(f"{shortage}: which layer is the best on it is mostly chance")
            log.warning("%s", self.cautions[-1])
        self.budget = self.budget.fitted()
        self.runs, self.config = self.budget.runs, self.budget.config
        work.prepare(config.one(), data, self.progress)
        self.runs.is_prepared = True
        return data

    def _layers(self, data: Any) -> list[Layer]:
        """The layers that are named, searched, and matched in size."""
        config = self.config
        named = named_layers(config, self.budget.bundled())
        layers = [*named, *self._searched()]
        if config.match:
            matched = matched_lstm(config, self.task.work.counter(data), [*layers, *random_layers(config, 1)])
            # with larger layers than before it is another one; those that were trained stay
            layers += dict.fromkeys([*self.runs.matched(), *([matched] if matched else [])])
        return layers

    def _searched(self) -> list[Layer]:
        """The cells that are searched on the same data; a search that fails is told, and the rest goes on."""
        jobs = []
        for name, by in self.runs.to_search().items():
            (self.run.folder / "searches").mkdir(exist_ok=True)
            folder = str(self.run.folder / "searches" / name)
            jobs.append(Job(name, self.task.work.search, (self.config.search(by), folder)))
        if jobs:
            log.info("%d cells are searched on this %s", len(jobs), self.task.data)
        for outcome in self.pool.run(jobs):
            self.ledger.note(outcome)
        return self.runs.searched()

    # --- after ---

    def _finish(self, everyone: list[Candidate], answer: Answer, seeds: list[int]) -> Selection:
        """Writes the report, and copies the winner's model of the best of these seeds."""
        winner, epochs = answer.winner.candidate, self.config.epochs
        best = min(seeds, key=lambda seed: self.runs.cost(winner, seed, epochs))
        cautions = [*self.cautions, *self.budget.cautions]
        report = report_of(answer, everyone, self.ledger, self.config, cautions)
        write_text(self.run.folder / "report.md", report)
        self.ledger.save()
        self.task.work.place(self.runs.folder / winner.run(best) / "model.pt", self.run.folder)
        return Selection(answer, report, self.run.folder, self.config)
