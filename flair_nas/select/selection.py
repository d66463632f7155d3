"""Selecting a layer: rungs of successive halving on dev, several seeds of the layer to beat and of the best, then test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of each training
OUT/ledger.json      plan, runs, time spent  OUT/report.md           the answer          OUT/model.pt    its model
"""

from __future__ import annotations

import dataclasses
import logging
import math
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.errors import FlairNasError
from flair_nas.files import whole_file, write_text
from flair_nas.rnn_text import say_risks
from flair_nas.runs import Run, open_run
from flair_nas.search.display import duration
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    bundled_best_first,
    candidates_of,
    is_to_beat,
    matched_lstm,
    named_layers,
    random_layers,
)
from flair_nas.select.config import SelectSettings, seconds_of
from flair_nas.select.ledger import Ledger
from flair_nas.select.report import Answer, answer_of, report_of
from flair_nas.select.rule import Rule, survivors
from flair_nas.select.schedule import Done, Pace, pace_of, rest, side_by_side
from flair_nas.select.tasks import TAGGING, Task
from flair_nas.select.workers import Job, Pool, make_pool
from flair_nas.tagging.config import FLAIR_TYPES

if TYPE_CHECKING:
    from flair_nas.select.ray_pool import RayPool

log = logging.getLogger("flair_nas")

_MAY_CHANGE = (
    *("budget", "candidates", "searches", "search_epochs", "random", "rates", "match", "workers", "device"),
    *("data_root", "text"),  # where data are; what they are is in the ledger
)
_SHARE = 0.85  # of the budget that is planned with; the rest is for what takes longer than measured
_MOST_RANDOM = 1000
_FORMER_RULE = Rule(first=0.2, keep=0.5)  # of taggers, in ledgers that do not tell it
_Wanted = tuple[Candidate, int, int, bool]  # a run: with this seed, to that epoch, scored or not


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
        self.budget = seconds_of(self.config.budget) or math.inf
        self.rule = self._rule()
        self.rungs = self.rule.rungs(self.config.epochs)
        self.is_new = False  # whether anything was trained now
        self.cautions: list[str] = []  # that the data are too small to choose on, or time was short

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
        (self.run.folder / "runs").mkdir(exist_ok=True)
        try:
            return self._select(self._layers(data))
        except KeyboardInterrupt:
            self.ledger.save()  # with the time that was spent since the last run ended
            raise

    def _select(self, layers: list[Layer]) -> Selection:
        config = self.config
        self._check_budget(layers)
        everyone = candidates_of(config, [*layers, *random_layers(config, self._random_count(layers))])
        log.info("%d candidates: %s", len(everyone), ", ".join(candidate.name for candidate in everyone))
        finalists, seeds = self._finalists(self._thin_out(everyone))
        jobs = [(candidate, seed, config.epochs, True) for seed in seeds for candidate in finalists]
        names = " and ".join(candidate.name for candidate in finalists)
        self._train(jobs, f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of {names}")
        if not self.is_new:
            log.info("%s is finished, so nothing was trained; --budget, --random or --candidates extend it",
                     self.run.folder)  # fmt: skip
        return self._finish(everyone, finalists, seeds)

    def _thin_out(self, everyone: list[Candidate]) -> list[Candidate]:
        """Those that come to the last epoch with the first seed, the best on dev first."""
        alive, places = everyone, len(everyone)
        for rung, epochs in enumerate(self.rungs, start=1):
            self._train_first_seeds(alive, epochs, f"rung {rung} of {len(self.rungs)}")
            found = {c.name: self._cost(c, self.config.seeds[0], epochs) for c in alive}
            costs = {name: cost for name, cost in found.items() if not math.isinf(cost)}
            if not costs:
                raise FlairNasError(f"no run of rung {rung} worked: {self._errors()}")
            if rung < len(self.rungs):
                places = self._places(rung, places, alive, costs)
                alive = self._going_on(places, alive, costs)
        return sorted((c for c in alive if c.name in costs), key=lambda candidate: costs[candidate.name])

    def _going_on(self, places: int, alive: Sequence[Candidate], costs: dict[str, float]) -> list[Candidate]:
        """Who goes on where there are so many places: always the layer to beat and the best of the others, too.

        Nobody should think that the layer to beat had the wrong rate, so it comes to the end with each.
        """
        to_beat = [candidate.name for candidate in alive if self._is_to_beat(candidate)]
        best = survivors({name: cost for name, cost in costs.items() if name not in to_beat}, 1)
        kept = {*to_beat, *best, *survivors(costs, places)} & set(costs)
        return [candidate for candidate in alive if candidate.name in kept]

    def _places(self, rung: int, places: int, alive: Sequence[Candidate], costs: dict[str, float]) -> int:
        """How many go on after so many rungs: by the rule, unless time would be short for all seeds of the last two."""
        of_rule, plan = self.rule.counts(places, self.rungs)[1], self.ledger.plan.setdefault("places", {})
        key = f"{places} after rung {rung}"  # with more candidates it is decided anew
        if key not in plan:
            seeds, left = len(self.config.seeds), self._left()

            def is_enough(count: int) -> bool:
                them = self._going_on(count, alive, costs)
                pace, done = self._pace(them), self._done(them)
                assert pace is not None  # they work
                return self._rest(seeds, len(them), done, pace, rung) <= left

            plan[key] = next((count for count in range(of_rule, 1, -1) if is_enough(count)), 1)
            self.ledger.save()
        of_time, by_rule = (len(self._going_on(count, alive, costs)) for count in (plan[key], of_rule))
        if of_time < by_rule:
            after = f"{self.rungs[rung - 1]} of {self.config.epochs} epochs"
            self.cautions.append(
                f"time was short, so after {after} {of_time} and not {by_rule} of {len(alive)} went on"
            )
            log.info("%s", self.cautions[-1])
        return int(plan[key])

    def _left(self) -> float:
        """Seconds; what is done is never too much, so they are not less than none."""
        return max(0.0, self.budget - self.ledger.seconds)

    def _rest(self, seeds: int, candidates: int, done: Done, pace: Pace, rung: int = 0) -> float:
        """Seconds from a rung to the end; arguments as of `rest`."""
        return rest(self.rule, self.config, seeds, candidates, done, pace, self.pool.workers, rung)

    def _done(self, candidates: Sequence[Candidate]) -> Done:
        first, *further = self.config.seeds
        return Done(
            [sum(self._is_done(c.run(first), epochs, score=False) for c in candidates) for epochs in self.rungs],
            sum(self._is_done(c.run(first), self.config.epochs, score=True) for c in candidates),
            sum(self._is_done(c.run(seed), self.config.epochs, score=True) for c in candidates for seed in further),
        )

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
        named = named_layers(config, self._bundled())
        for layer in named:
            say_risks(layer.rnn, FLAIR_TYPES)
        self._check_budget(named)  # before time goes into searches
        layers = [*named, *self._searched()]
        if config.match:
            matched = matched_lstm(config, self.task.work.counter(data), [*layers, *random_layers(config, 1)])
            layers += [matched] if matched else []
        return layers

    def _bundled(self) -> list[str]:
        """The bundled cells to compare where none is named: as many as there is time for, and those that were begun."""
        config, plan, names = self.config, self.ledger.plan, bundled_best_first()
        if config.candidates:
            return []
        if "bundled" not in plan:
            least = named_layers(config, names[:1])
            self._check_budget(least)
            pace, left = self._probe(least), _SHARE * self.budget - self.ledger.seconds
            unknown = (len(config.searches) + config.match) * len(config.rates)  # found or matched later

            def is_enough(count: int) -> bool:
                named = self._named(named_layers(config, names[:count]))
                candidates, done = len(named) + unknown, self._done(named)
                return self._rest(len(config.seeds), candidates, done, pace) <= left

            count = next((count for count in range(len(names), 1, -1) if is_enough(count)), 1)
            begun = {c.layer.rnn for c in candidates_of(config, named_layers(config)) if self._epochs(c)}
            plan["bundled"] = [name for name in names if name in begun or name in names[:count]]
            self.ledger.save()
        found: list[str] = plan["bundled"]
        if len(found) < len(names):
            self.cautions.append(
                f"the time is enough for {len(found)} of the {len(names)} bundled cells; --budget compares more, "
                "--candidates others"
            )
            log.info("%s", self.cautions[-1])
        return found

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

    # --- what the budget is enough for ---

    def _check_budget(self, layers: list[Layer]) -> None:
        """Sees to it that the budget is enough for what is named, by the time of an epoch.

        Raises:
            FlairNasError: it is not.
        """
        config = self.config
        named = [c for c in self._named(layers) if not self._has_failed(c)]
        if all(self._epochs(candidate) >= self.rungs[0] for candidate in named):
            return
        pace = self._probe(layers)
        needed = self._rest(1, len(named), self._done(named), pace)
        if needed > self._left():
            whole = duration(needed + self.ledger.seconds)
            three = "--candidates lstm i-darts-ptb --random 1 --rates 1 --no-match"
            less = f"; or have less to compare: {three} are three layers" if len(named) > 3 else ""
            raise FlairNasError(
                f"the budget of {config.budget} is not enough: an epoch takes {pace.epoch:.1f} s, so {len(named)} "
                f"layers and learning rates take about {whole} with one seed; give more{less}"
                f"{self._fewer_epochs(len(named), pace)}"
            )

    def _probe(self, layers: list[Layer]) -> Pace:
        """What an epoch of two of them takes: of the layer to beat, and of the last one or a random cell."""
        named = [c for c in self._named(layers) if not self._has_failed(c)]
        probes = [c for c in named if c.layer in (layers[0], named[-1].layer)][:: len(self.config.rates)]
        self._train_first_seeds(probes, 1, "a first epoch, to measure its time")
        return self._pace(probes) or Pace(0.0, 0.0)  # if these do not work, the first rung tells

    def _fewer_epochs(self, candidates: int, pace: Pace) -> str:
        """How many epochs the budget would be enough for, in words; nothing where it is not for one."""
        for epochs in range(self.config.epochs - 1, 0, -1):
            fewer, nothing = dataclasses.replace(self.config, epochs=epochs), Done([0] * len(self.rule.rungs(epochs)))
            if rest(self.rule, fewer, 1, candidates, nothing, pace, self.pool.workers) <= self._left():
                return f"; or, in another folder, --epochs {epochs}, for which it would be just enough now"
        return ""

    def _random_count(self, layers: list[Layer]) -> int:
        """How many random cells; the first rung of the layers that are named tells what they would take."""
        config, plan = self.config, self.ledger.plan
        if config.random is not None:
            return config.random
        if "random" not in plan:
            named = self._named(layers)
            self._train_first_seeds(named, self.rungs[0], f"rung 1 of {len(self.rungs)}, what is named")
            pace, seeds = self._pace(named), len(config.seeds)
            if pace is None:
                raise FlairNasError(f"no run of rung 1 worked: {self._errors()}")
            left = _SHARE * self.budget - self.ledger.seconds
            count = begun = max(1, self._random_begun())
            everyone = candidates_of(config, [*layers, *random_layers(config, begun)])
            good = [candidate for candidate in everyone if not self._has_failed(candidate)]
            each, done = len(candidates_of(config, random_layers(config, 1))), self._done(good)

            def is_enough(count: int) -> bool:
                candidates = len(good) + (count - begun) * each
                return self._rest(seeds, candidates, done, pace) <= left

            while count < _MOST_RANDOM and is_enough(count + 1):
                count += 1
            plan["random"] = count
            self.ledger.save()
        return int(plan["random"])

    def _random_begun(self) -> int:
        """How many random cells have been trained, with an earlier budget; they stay."""
        config, count, each = self.config, 0, len(random_layers(self.config, 1))
        while any(map(self._epochs, candidates_of(config, random_layers(config, count + 1)[-each:]))):
            count += 1
        return count

    def _named(self, layers: list[Layer]) -> list[Candidate]:
        """Candidates that there are whatever the time."""
        random = 1 if self.config.random is None else self.config.random
        return candidates_of(self.config, [*layers, *random_layers(self.config, random)])

    def _finalists(self, ranked: list[Candidate]) -> tuple[list[Candidate], list[int]]:
        """Those that are trained with several seeds, and with which; time that is left is for the next best ones."""
        config, plan, left = self.config, self.ledger.plan, self._left()
        groups = [[c for c in ranked if self._is_to_beat(c) is to_beat] for to_beat in (True, False)]
        first = [group[0] for group in groups if group]
        order = [*first, *(candidate for candidate in ranked if candidate not in first)]

        def seconds_of_training(candidate: Candidate) -> float:
            run = self._run(candidate, config.seeds[0])
            return float(sum(run["seconds"]) + run["around_seconds"])

        def is_enough(finalists: int, seeds: int) -> bool:
            jobs = [(candidate, seed) for seed in config.seeds[1:seeds] for candidate in order[:finalists]]
            to_do = [c for c, seed in jobs if not self._is_done(c.run(seed), config.epochs, score=True)]
            longest_first = sorted(map(seconds_of_training, to_do), reverse=True)
            return side_by_side(longest_first, self.pool.workers) <= left

        if "finalists" not in plan:
            least, all_seeds = len(first), len(config.seeds)
            plan["seeds"] = next((n for n in range(all_seeds, 1, -1) if is_enough(least, n)), 1)
            if plan["seeds"] < all_seeds:
                log.warning("the budget is enough for %d of %d seeds", plan["seeds"], all_seeds)
            more = range(len(order), least, -1) if plan["seeds"] == all_seeds > 1 else ()
            plan["finalists"] = next((n for n in more if is_enough(n, all_seeds)), least)
            self.ledger.save()
        return order[: int(plan["finalists"])], config.seeds[: int(plan["seeds"])]

    def _pace(self, candidates: Sequence[Candidate]) -> Pace | None:
        """What runs take; None where none works."""
        runs = [self._run(candidate, self.config.seeds[0]) for candidate in candidates]
        good = [run for run in runs if "error" not in run]
        return pace_of(good) if good else None

    # --- runs ---

    def _train_first_seeds(self, candidates: Sequence[Candidate], epochs: int, what: str) -> None:
        jobs = [(candidate, self.config.seeds[0], epochs, False) for candidate in candidates]
        self._train(jobs, f"{what}, to epoch {epochs}")

    def _train(self, wanted: Sequence[_Wanted], what: str) -> None:
        """Has runs come to so many epochs, and to a score; those that are there already are left alone."""
        jobs = []
        for candidate, seed, epochs, score in self._longest_first(wanted):
            name = candidate.run(seed)
            if not self._is_done(name, epochs, score):
                settings = candidate.settings(self.config, seed, epochs)
                folder = str(self.run.folder / "runs" / name)
                jobs.append(Job(name, self.task.work.train, (settings, folder, score)))
        if jobs:
            self.is_new = True
            log.info("%s: %d runs, %s spent of %s", what, len(jobs), duration(self.ledger.seconds), self.config.budget)
        for done, outcome in enumerate(self.pool.run(jobs), start=1):
            if self.ledger.note(outcome):
                result = outcome.result
                figure = f"best {self.task.title} on {self.task.dev} {self.task.best(result['dev']):.2f}"
                figure += f" (least loss {min(result['dev_loss']):.4f})"  # which decides where figures are level
                spent = duration(self.ledger.seconds)
                log.info("%d of %d, %s: %s; %s spent", done, len(jobs), outcome.job.name, figure, spent)

    def _longest_first(self, wanted: Sequence[_Wanted]) -> list[_Wanted]:
        """So that at the end no process waits long for another; what is not known comes first."""

        def seconds(job: _Wanted) -> float:
            candidate, seed, epochs, _ = job
            pace = self._pace([candidate])
            left = epochs - len(self._run(candidate, seed).get("dev", ()))
            return math.inf if pace is None else pace.epoch * left + pace.around

        return sorted(wanted, key=seconds, reverse=True)  # stable

    def _is_done(self, name: str, epochs: int, score: bool) -> bool:
        run = self.ledger.runs.get(name, {})
        if "error" in run:
            return True
        come = len(run.get("dev", ())) >= epochs or run.get("exhausted", False)
        return bool(come and ("counts" in run or not score))

    def _run(self, candidate: Candidate, seed: int) -> dict[str, Any]:
        return self.ledger.runs.get(candidate.run(seed), {"error": "it was not begun"})

    def _has_failed(self, candidate: Candidate) -> bool:
        return "error" in self.ledger.runs.get(candidate.run(self.config.seeds[0]), {})

    def _epochs(self, candidate: Candidate) -> int:
        return len(self._run(candidate, self.config.seeds[0]).get("dev", ()))

    def _cost(self, candidate: Candidate, seed: int, epochs: int) -> float:
        run = self._run(candidate, seed)
        if "error" in run:
            return math.inf
        early = epochs < self.config.epochs
        return self.task.early_cost(run, epochs) if early else self.task.cost(run, epochs)

    def _is_to_beat(self, candidate: Candidate) -> bool:
        return is_to_beat(candidate.layer, self.config)

    def _errors(self) -> str:
        found = {run["error"] for run in self.ledger.runs.values() if "error" in run}
        return "; ".join(sorted(found)[:3])

    # --- after ---

    def _finish(self, everyone: list[Candidate], finalists: list[Candidate], seeds: list[int]) -> Selection:
        def mean(candidate: Candidate) -> float:
            return statistics.mean(self._cost(candidate, seed, self.config.epochs) for seed in seeds)

        ranked = sorted((c for c in finalists if not math.isinf(mean(c))), key=mean)
        if not ranked:
            raise FlairNasError(f"no layer worked with all of its seeds: {self._errors()}")
        others = [c for c in ranked if self._is_to_beat(c) != self._is_to_beat(ranked[0])]
        compared = [ranked[0], *others[:1]]  # the layer to beat is one of the two
        runs = [[self._run(candidate, seed) for seed in seeds] for candidate in compared]
        answer = answer_of(self.task, compared, runs)
        best = min(seeds, key=lambda seed: self._cost(ranked[0], seed, self.config.epochs))
        source = self.run.folder / "runs" / ranked[0].run(best) / "model.pt"
        with whole_file(self.run.folder / "model.pt") as temporary:
            shutil.copyfile(source, temporary)
        report = report_of(answer, everyone, self.ledger, self.config, self.cautions)
        write_text(self.run.folder / "report.md", report)
        self.ledger.save()
        return Selection(answer, report, self.run.folder)
