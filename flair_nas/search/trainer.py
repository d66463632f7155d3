"""The search trainer: one run folder, an exact checkpoint after each epoch, any strategy, any number of processes.

OUT/config.yaml      the resolved settings      OUT/history.jsonl           a line per epoch
OUT/genotype.json    the best genotype so far   OUT/checkpoint.pt           and checkpoint-previous.pt: the last epochs
OUT/progress.svg     the objective's measure and MAD over epochs, at the end
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.layer_spec import say_risks
from flair_nas.runs.metric import Measure
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run, open_run
from flair_nas.search.build import log_derived_settings, make_objective
from flair_nas.search.config import SearchSettings
from flair_nas.search.health import explain_failure
from flair_nas.search.model_update import REMEDY, NotFinite
from flair_nas.search.processes import by_main, gathered, make_accelerator, make_reduce, only_main_logs
from flair_nas.search.progress import Display
from flair_nas.search.protocols import Objective
from flair_nas.search.registry import strategy_class
from flair_nas.settings.fields import changed
from flair_nas.storage.paths import user_path
from flair_nas.version import __version__

log = logging.getLogger("flair_nas")

_PLACES = ("text", "data_root", "device", "storage")  # settings that say where something is on a machine


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Args:
        genotype: with its origin.
        history: what ``history.jsonl`` holds, a dictionary per epoch.
        out: the run folder.
        measure: by which the objective is judged; its `key` is in the history.
        verdict: one plain sentence on how far the genotype can be relied on; empty where there is nothing to say.
        learned: False if the search did no better than a guess without a model; the verdict says what to change.
    """

    __module__ = "flair_nas"

    genotype: Genotype
    history: list[dict[str, Any]]
    out: Path
    measure: Measure
    verdict: str = ""
    learned: bool = True


def search_genotype(
    config: SearchSettings,
    out: str | Path,
    *,
    text: Any = None,
    objective: Callable[[Accelerator], Objective] | None = None,
    progress: bool = True,
) -> SearchResult:
    """Searches an architecture and writes everything to one folder.

    Args:
        config: the settings.
        out: a folder that is new or empty, or one that an earlier call with the same settings did not finish: then it
            goes on from the last checkpoint, with the same result, to the bit on a CPU, as a run that never stopped.
        text: what `load_text` takes, such as a Flair corpus, in place of the setting `text`.
        objective: makes another objective than the one of the settings, on the accelerator's device, and seeds
            generators.
        progress: draw progress bars on standard error.

    Returns:
        The genotype and the history.

    Raises:
        FlairNasError: settings, text or folder that cannot be used; a loss that is not finite.
        RunStopped: after Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full; the last good checkpoint is kept.
    """
    out = user_path(out)
    accelerator = make_accelerator(config.device, config.precision)
    command = "flair-nas search" if text is None and objective is None else None
    if command and accelerator.num_processes > 1:
        command = f"torchrun --nproc-per-node {accelerator.num_processes} -m flair_nas search"
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_main_logs(accelerator))
        for source in [*([config.fixed] if config.learn == "intra" and config.fixed else []), *config.candidates]:
            say_risks(source)
        if config.learn == "intra" and changed(config, "carry"):
            log.warning("carry=%s is of gates that are searched, and none are; those of --fixed have their own: %s",
                        config.carry, f"--fixed NAME,carry={config.carry}")  # fmt: skip
        # the main process keeps the folder for all
        run = by_main(accelerator, lambda: stack.enter_context(_open(config, out, command))) or Run(out, config)
        learned = make_objective(config, accelerator, data=text, make=objective, progress=progress)
        return _Search(run, learned, accelerator, progress).run_all()


def _open(config: SearchSettings, out: Path, command: str | None) -> contextlib.AbstractContextManager[Run]:
    """The run folder, kept for this search; the text may have moved, as its fingerprint is in the checkpoint."""
    first = ("init_range", "embedding_init_range", "frequency_bias")  # they concern the first step alone
    layout = ("delimiter", "comment")  # of a corpus; its digest is in the checkpoint, too
    may_change = [*_PLACES, *first, *layout]
    may_change += ["epochs"] if strategy_class(config.strategy).extendable(config) else []
    may_change += [] if config.history else ["carry"]  # without gates it has no meaning
    return open_run(out, config, may_change=may_change, quantity="search", command=command)


class _Search:
    """One search in its folder."""

    def __init__(self, run: Run, objective: Objective, accelerator: Accelerator, progress: bool) -> None:
        config: SearchSettings = run.config
        self.run, self.config, self.objective, self.accelerator = run, config, objective, accelerator
        self.is_main = accelerator.is_main_process
        self.progress = progress and self.is_main
        self.reduce = make_reduce(accelerator)
        self.strategy = strategy_class(config.strategy)(objective, config, self.reduce)
        self.guess = objective.guess()
        part = self.strategy.judged_on
        self.judged_against = self.guess if part == "valid" else objective.guess(part)
        self.epoch = 0  # the last whole one

    def run_all(self) -> SearchResult:
        run, finished = self.run, self.run.resume(self._restore)
        by_main(self.accelerator, run.accept)
        if finished:
            extends = self.strategy.extendable(self.config) and not self.strategy.converged()
            log.warning(
                "%s is finished, so nothing was searched%s", run.folder, "; --epochs extends it" if extends else ""
            )
        else:
            self._train()
        genotype = (self._kept_genotype() if finished else None) or self._write_genotype()
        if self.is_main and run.history:
            from flair_nas.drawing.progress import draw_progress

            draw_progress({"": run.history}, run.folder / "progress.svg", self.objective.measure)
        verdict, learned = self._verdict(), not self._failure()
        return SearchResult(genotype, run.history, run.folder, self.objective.measure, verdict, learned)

    # --- epochs ---

    def _train(self) -> None:
        objective, epochs = self.objective, range(self.epoch + 1, self.config.epochs + 1)
        if not self.epoch:
            log_derived_settings(objective)
        steps = {epoch: self.strategy.steps(epoch) for epoch in epochs}
        with Display(sum(steps.values()), self.progress, self.objective.measure) as display:
            self.objective.module.train()
            try:
                for epoch in epochs:
                    # asked first: there may be nothing to learn, or a run was stopped right after its last epoch
                    if self.strategy.converged():
                        log.info("nothing is left to learn after epoch %d of %d", self.epoch, self.config.epochs)
                        break
                    self._train_epoch(epoch, steps[epoch], display)
                self.strategy.finish(self.progress)
            except NotFinite as error:
                kept = f"The checkpoint of epoch {self.epoch} is kept: {self.run.checkpoints.newest}"
                raise NotFinite(f"{error} {kept if self.epoch else 'There is no checkpoint yet.'}") from None
        self._save(finished=True)

    def _train_epoch(self, epoch: int, steps: int, display: Display) -> None:
        started, started_cpu = time.perf_counter(), time.process_time()
        self.objective.restart()  # both streams begin anew
        training = validation = largest = 0.0
        looked = trained_steps = 0
        for step in range(steps):
            figures = self.strategy.step(epoch, step)
            if figures.training_loss is not None:
                training += figures.training_loss
                trained_steps += 1
            largest = max(largest, figures.gradient_norm)
            if figures.validation_loss is not None:
                validation += figures.validation_loss
                looked += 1
            display.step(
                epoch,
                self.config.epochs,
                training / max(trained_steps, 1),
                validation / looked if looked else None,
                self.strategy,
            )
        trained, trained_cpu = time.perf_counter(), time.process_time()
        if self.reduce is not None:  # each process has seen other columns; batch normalisation keeps their statistics
            self.reduce([buffer for buffer in self.objective.buffers() if buffer.is_floating_point()])
        loss, value = self.objective.evaluate()
        if not math.isfinite(loss):
            self._check_weights(epoch, steps, largest)
            if not self.strategy.bears_nan:
                raise NotFinite(f"not finite after epoch {epoch}: the valid loss is {loss}. {REMEDY}")
            log.warning("the valid loss after epoch %d is %s; the search goes on", epoch, loss)
        measure = self.objective.measure
        line: dict[str, Any] = {
            "epoch": epoch,
            "training_loss": training / trained_steps if trained_steps else None,
            "architecture_loss": validation / looked if looked else None,
            "valid_loss": loss if math.isfinite(loss) else None,
            measure.key: value if math.isfinite(value) else None,
            **({f"{guess.key}_{measure.name}": measure.of_cost(guess.cost)} if (guess := self.guess) else {}),
            **self.strategy.end_epoch(),
            "genotype": self.strategy.genotype().one_line(),
            "steps": steps,
            "seconds": trained - started,
            "cpu_seconds": trained_cpu - started_cpu,
            "evaluation_seconds": time.perf_counter() - trained,
        }
        self.run.history.append(line)
        self.epoch = epoch
        self._save(finished=False)
        self._write_genotype()
        display.epoch(line, self.config.epochs)

    def _check_weights(self, epoch: int, steps: int, largest: float) -> None:
        """Weights that are not finite are never saved."""
        for name, weight in self.objective.module.named_parameters():
            if not weight.isfinite().all():
                raise NotFinite(
                    f"not finite after epoch {epoch}, step {steps}: {name}; the largest gradient of the epoch had the "
                    f"norm {largest:g}. {REMEDY}"
                )

    # --- what is on disk ---

    def _save(self, finished: bool) -> None:
        randomness = gathered(random_state())
        by_main(self.accelerator, lambda: self._write_checkpoint(finished, randomness))

    def _write_checkpoint(self, finished: bool, randomness: list[Any]) -> None:
        self.run.save(
            {
                "epoch": self.epoch,
                "finished": finished,
                "text": self.objective.fingerprint,
                "fixed": self._fixed(),
                "model": self.objective.module.state_dict(),
                "strategy": self.strategy.state_dict(),
                "objective": {},
                "random": randomness,
            }
        )

    def _restore(self, state: dict[str, Any]) -> bool:
        """Puts a checkpoint in place; whether the run was finished."""
        newest, data = self.run.checkpoints.newest, self.objective.data
        if (now := self.objective.fingerprint) != state["text"]:
            if now.startswith(state["text"]):  # see flair_nas.tagging.evaluation.fingerprint_of
                raise FlairNasError(
                    f"{newest}: accuracy left out words without a label when this search began; choose another folder"
                )
            raise FlairNasError(
                f"{newest}: the {data} has changed since this search began; it is now that of {self.objective.name}; "
                f"choose another folder, or give back the {data}"
            )
        fixed = state.get("fixed", self._fixed())
        if fixed and ", carry=" not in fixed:  # there was no such option
            fixed += f", carry={'gated' if '/state=' in fixed else 'ungated'}"
        if fixed != self._fixed():
            raise FlairNasError(
                f"{newest}: the genotype {self.config.fixed}, which stays fixed, was {fixed} "
                "when this search began; choose another folder, or give back the genotype"
            )
        if len(state["random"]) != self.accelerator.num_processes:
            raise FlairNasError(
                f"{newest} is of a search with {len(state['random'])} processes, this one has "
                f"{self.accelerator.num_processes}; they would not go on alike"
            )
        self.objective.module.load_state_dict(state["model"])
        self.strategy.load_state_dict(state["strategy"])
        self.epoch = state["epoch"]
        restore_random_state(state["random"][self.accelerator.process_index])
        return self.run.is_finished(self.epoch if state["finished"] else None, early=self.strategy.converged())

    def _fixed(self) -> str | None:
        fixed = self.config.fixed_genotype()
        if fixed is None:
            return None
        return f"{fixed.one_line()} with " + ", ".join(f"{name}={value}" for name, value in fixed.options.items())

    def _kept_genotype(self) -> Genotype | None:
        """What a finished search has written, if it is still there: its origin says when and by what it was found."""
        found = self.strategy.genotype()
        try:
            kept = Genotype.load(self.run.folder / "genotype.json")
        except (FlairNasError, OSError):
            return None
        same = (kept, kept.options, kept.origin.get("figures")) == (found, found.options, self._figures())
        return kept if same else None

    def _figures(self) -> dict[str, Any]:
        """For the origin of the genotype."""
        history, key = self.run.history, self.objective.measure.key
        return {
            "epochs": self.epoch,
            f"supernet_{key}": history[-1][key] if history else None,
            "seconds": sum(line["seconds"] + line["evaluation_seconds"] for line in history),
        }

    def _failure(self) -> str:
        history = self.run.history
        cost = self.strategy.cost(history) if history else None
        losses = [line["training_loss"] for line in history]
        return explain_failure(cost, self.judged_against, self.objective.measure, losses, self.strategy.judged_on)

    def _verdict(self) -> str:
        return self._failure() or self.strategy.verdict(self.run.history)

    def _write_genotype(self) -> Genotype:
        origin: dict[str, Any] = {
            "method": self.strategy.method(self.config),
            "corpus": self.objective.name,
            "command": "flair-nas search --config FILE, with the settings below that are not the defaults",
            "settings": {name: value for name, value in changed(self.config).items() if name not in _PLACES},
            "date": datetime.date.today().isoformat(),
            "figures": self._figures(),
            **({"verdict": said} if (said := self._verdict()) else {}),
            "flair_nas": __version__,
        }
        genotype = dataclasses.replace(self.strategy.genotype(), origin=origin)
        by_main(self.accelerator, lambda: genotype.save(self.run.folder / "genotype.json"))
        return genotype
