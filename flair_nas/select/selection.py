"""Selecting a layer: rungs of successive halving on dev, several seeds of the best and of the layer to beat, then test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of `train_taggers` for each run
OUT/ledger.json      plan, runs, time spent  OUT/report.md           the answer          OUT/model.pt    its tagger
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, shown
from flair_nas.files import whole_file, write_text
from flair_nas.runs import Run, open_run
from flair_nas.search.display import duration
from flair_nas.select.candidates import Candidate, Layer, candidates_of, matched_lstm, named_layers, random_layers
from flair_nas.select.config import SelectConfig, seconds_of
from flair_nas.select.ledger import Ledger
from flair_nas.select.report import Answer, answer_of, report_of
from flair_nas.select.rule import Rule, survivors
from flair_nas.select.training import train
from flair_nas.select.workers import Died, Job, Pool

log = logging.getLogger("flair_nas")

_MAY_CHANGE = ("budget", "candidates", "random", "rates", "match", "workers", "device", "data_root")
_SHARE = 0.85  # of the budget that is planned with; the rest is for what takes longer than measured


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


def select_layer(config: SelectConfig, out: str | Path, *, progress: bool = False) -> Selection:
    """Compares recurrent layers on a corpus within a budget, and trains the best.

    Args:
        config: the settings.
        out: a folder that is new or empty, or one of an earlier call: it goes on there, and trains nothing twice, also
            with another budget or more candidates.
        progress: draw a progress bar while words are embedded.

    Raises:
        FlairNasError: settings, corpus or folder that cannot be used; a budget that is too small; no run that worked.
        RunStopped: after Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.
    """
    workers = config.workers or len(os.sched_getaffinity(0))
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="selection", command="flair-nas select") as run,
        Pool(workers) as pool,
    ):
        return _Selection(run, pool, progress).run_all()


class _Selection:
    """One selection in its folder."""

    def __init__(self, run: Run, pool: Pool, progress: bool) -> None:
        self.run, self.pool, self.progress = run, pool, progress
        self.config: SelectConfig = run.config
        self.ledger = Ledger(run.folder / "ledger.json")
        self.before, self.started = self.ledger.seconds, time.perf_counter()
        self.budget = seconds_of(self.config.budget) or math.inf
        self.rule = Rule()
        self.rungs = self.rule.rungs(self.config.epochs)

    def run_all(self) -> Selection:
        config, seeds = self.config, self.config.seeds
        self.run.accept()
        (self.run.folder / "runs").mkdir(exist_ok=True)
        layers, spans = self._prepare()
        everyone = candidates_of(config, [*layers, *random_layers(config, self._random_count(layers))])
        log.info("%d candidates: %s", len(everyone), ", ".join(candidate.name for candidate in everyone))
        to_beat = [candidate for candidate in everyone if candidate.layer == layers[0]]
        alive, kept_after = everyone, [*self.rule.counts(len(everyone), self.rungs)[1:], 1]
        for rung, (epochs, wanted) in enumerate(zip(self.rungs, kept_after), start=1):
            self._train([(candidate, seeds[0], epochs, ()) for candidate in alive], f"rung {rung}: {epochs} epochs")
            costs = {candidate.name: self._cost(candidate, seeds[0], epochs) for candidate in alive}
            if all(math.isinf(cost) for cost in costs.values()):
                raise FlairNasError(f"no run of rung {rung} worked: {self._errors()}")
            kept = survivors({name: cost for name, cost in costs.items() if not math.isinf(cost)}, wanted)
            kept += survivors({c.name: costs[c.name] for c in to_beat if c.name in costs}, 1)
            alive = [candidate for candidate in alive if candidate.name in kept]
        finalists = sorted(alive, key=lambda candidate: self._cost(candidate, seeds[0], config.epochs))
        jobs = [(candidate, seed, config.epochs, ("dev", "test")) for seed in seeds for candidate in finalists]
        self._train(jobs, f"{len(seeds)} seeds of {' and '.join(c.name for c in finalists)}")
        return self._finish(everyone, finalists, to_beat, spans)

    # --- before ---

    def _prepare(self) -> tuple[list[Layer], bool]:
        """The layers that are named, and whether spans are tagged; embeds the corpus for all processes."""
        from flair_nas.tagging.corpora import is_token_level, sentences_of
        from flair_nas.tagging.embeddings import build_embeddings
        from flair_nas.tagging.frozen import keep_frozen
        from flair_nas.tagging.training import load_corpus_of

        config = self.config.tagger()
        corpus = load_corpus_of(config)
        embeddings = build_embeddings(config.embeddings, corpus.corpus)
        keep_frozen(embeddings, corpus, on_disk=True, progress=self.progress)
        layers = named_layers(self.config)
        if self.config.match and (matched := matched_lstm(self.config, embeddings.embedding_length, layers)):
            layers.append(matched)
        return layers, not is_token_level(sentences_of(corpus.corpus.train), corpus.label_type)

    def _random_count(self, layers: list[Layer]) -> int:
        """How many random cells the budget is enough for, by the time that one epoch takes."""
        config, seed = self.config, self.config.seeds[0]
        if config.random is not None:
            return config.random
        if "random" in self.ledger.plan:
            return int(self.ledger.plan["random"])
        probes = candidates_of(config, [layers[0], *random_layers(config, 1)])[:: len(config.rates)]
        self._train([(candidate, seed, 1, ()) for candidate in probes], "one epoch, to measure its time")
        runs = [self._run(candidate, seed) for candidate in probes if self._works(candidate, seed)]
        if not runs:
            raise FlairNasError(f"no run worked: {self._errors()}")
        seconds = max(run["seconds"][0] for run in runs)
        around = min(run["job_seconds"] - run["seconds"][0] for run in runs)  # the first of a process also loads
        left = _SHARE * self.budget - self._spent()

        def needed(random: int) -> float:
            count = (len(layers) + random * (2 if config.gates else 1)) * len(config.rates)
            finals = 2 * (len(config.seeds) - 1)
            epochs = self.rule.cost(count, config.epochs) + config.epochs * (1 + finals)
            jobs = sum(self.rule.counts(count, self.rungs)) + len(self.rungs) + finals
            return float(epochs * seconds + jobs * around) / self.pool.workers

        if needed(0) > left:
            all_in_all = duration((needed(0) + self._spent()) / _SHARE)
            raise FlairNasError(
                f"the budget of {config.budget} is not enough: an epoch takes {seconds:.1f} s, so {len(layers)} layers "
                f"with {len(config.rates)} learning rates take about {all_in_all}; give more, or fewer candidates, "
                "rates, epochs or seeds"
            )
        count = 0
        while needed(count + 1) <= left:
            count += 1
        self.ledger.plan |= {"random": count, "epoch_seconds": seconds}
        self._save()
        return count

    # --- runs ---

    def _train(self, wanted: Sequence[tuple[Candidate, int, int, tuple[str, ...]]], what: str) -> None:
        """Has runs come to so many epochs and scores; those that are there already are left alone."""
        jobs = []
        for candidate, seed, epochs, parts in wanted:
            name = candidate.run(seed)
            if not self._is_done(self.ledger.runs.get(name, {}), epochs, parts):
                settings = dataclasses.asdict(candidate.config(self.config, seed, epochs))
                jobs.append(Job(name, train, (settings, str(self.run.folder / "runs" / name), parts)))
        if jobs:
            log.info("%s: %d runs, %s spent of %s", what, len(jobs), duration(self._spent()), self.config.budget)
        for outcome in self.pool.run(jobs):
            if isinstance(outcome.error, OSError):  # of the disk, which is the same for all
                raise outcome.error
            if outcome.error is not None:
                known = isinstance(outcome.error, (FlairNasError, Died))
                error = str(outcome.error) if known else shown(outcome.error)
                log.warning("%s failed: %s", outcome.job.name, error)
                self.ledger.runs[outcome.job.name] = {"error": error}
            else:
                self.ledger.runs[outcome.job.name] = outcome.result
                best = max(outcome.result["dev"])
                log.info("%s: %d epochs, dev %.2f", outcome.job.name, len(outcome.result["dev"]), best)
            self._save()

    def _is_done(self, run: dict[str, Any], epochs: int, parts: Sequence[str]) -> bool:
        if "error" in run:
            return True
        come = len(run.get("dev", ())) >= epochs or run.get("exhausted", False)
        return bool(come and set(parts) <= set(run["scored"]))

    def _run(self, candidate: Candidate, seed: int) -> dict[str, Any]:
        return self.ledger.runs.get(candidate.run(seed), {"error": "it was not begun"})

    def _works(self, candidate: Candidate, seed: int) -> bool:
        return "error" not in self._run(candidate, seed)

    def _cost(self, candidate: Candidate, seed: int, epochs: int) -> float:
        """Minus the best F1 on dev in so many epochs; where there is none yet, the loss decides."""
        run = self._run(candidate, seed)
        return math.inf if "error" in run else 1e-6 * min(run["dev_loss"][:epochs]) - max(run["dev"][:epochs])

    def _errors(self) -> str:
        found = {run["error"] for run in self.ledger.runs.values() if "error" in run}
        return "; ".join(sorted(found)[:3])

    def _spent(self) -> float:
        return self.before + time.perf_counter() - self.started

    def _save(self) -> None:
        self.ledger.seconds = self._spent()
        self.ledger.save()

    # --- after ---

    def _finish(
        self, everyone: list[Candidate], finalists: list[Candidate], to_beat: list[Candidate], spans: bool
    ) -> Selection:
        config = self.config
        means = {
            candidate.name: statistics.mean(-self._cost(candidate, seed, config.epochs) for seed in config.seeds)
            for candidate in finalists
            if all(self._works(candidate, seed) for seed in config.seeds)
        }
        if not means:
            raise FlairNasError(f"no layer worked with all of its seeds: {self._errors()}")
        ranked = sorted((c for c in finalists if c.name in means), key=lambda c: -means[c.name])
        answer = answer_of(self.run.folder, ranked[0], [c for c in ranked if c in to_beat], config.seeds, spans)
        best = max(config.seeds, key=lambda seed: -self._cost(ranked[0], seed, config.epochs))
        source = self.run.folder / "runs" / ranked[0].run(best) / "model.pt"
        with whole_file(self.run.folder / "model.pt") as temporary:
            shutil.copyfile(source, temporary)
        report = report_of(answer, everyone, self.ledger, config, self._spent())
        write_text(self.run.folder / "report.md", report)
        self._save()
        return Selection(answer, report, self.run.folder)
