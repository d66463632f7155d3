"""Search trainer: one run folder, an exact checkpoint after each epoch, any strategy, any number of processes."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator
from tqdm import tqdm

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype
from flair_nas.library.layer_spec import warn_of_risks
from flair_nas.runs.duration import duration
from flair_nas.runs.epoch_record import EpochClock, describe_epoch, sum_seconds
from flair_nas.runs.metric import Metric
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run, open_run
from flair_nas.search.build import log_derived_settings, make_objective, make_strategy
from flair_nas.search.config import SearchConfig, SearchSettings
from flair_nas.search.health import explain_failure, explain_tasks
from flair_nas.search.processes import average, by_main, gather, make_accelerator, only_main_logs
from flair_nas.search.protocols import JSON, REMEDY, Candidate, Data, Objective, Strategy
from flair_nas.search.settings import PLACES
from flair_nas.search.space import make_space
from flair_nas.settings.fields import changed, check_config, get_kinds
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.column_rows import ColumnFormat
from flair_nas.version import __version__

log = logging.getLogger("flair_nas")


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Args:
        genotype: with its provenance; of a search of sublayers, an `Order` in its place.
        history: contents of ``history.jsonl``, a dictionary per epoch.
        out: the run folder.
        metric: the metric that the objective is judged by; its `key` is in the history.
        verdict: one plain sentence on the reliability of the genotype; empty if there is nothing to say.
        learned: False if the search did no better than a guess without a model; the verdict then has advice.

    Example:
        The folder is that of the example of `search_genotype`, and nothing is searched again.

        >>> from flair_nas import SearchConfig, search_genotype
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "nodes": 2, "batch_size": 32, "bptt": 100}
        >>> config = SearchConfig(text="demo", epochs=1, learning_rate=1.0, device="cpu", **sizes)
        >>> result = search_genotype(config, "runs/search", progress=False)
        >>> result.metric.key in result.history[0]
        True
    """

    __module__ = "flair_nas"

    genotype: Genotype
    history: list[JSON]
    out: Path
    metric: Metric
    verdict: str = ""
    learned: bool = True


def search_genotype(
    config: SearchSettings,
    out: str | Path,
    *,
    text: Data = None,
    objective: Callable[[Accelerator], Objective] | None = None,
    progress: bool = True,
) -> SearchResult:
    """Search an architecture and write everything to one folder.

    Args:
        config: the settings.
        out: a new or empty folder, or that of an unfinished search with the same settings. The latter goes on from its
            last checkpoint; on a CPU, its result is the same to the bit as without the stop.
        text: a source for `load_text`, such as a Flair corpus, in place of the setting `text`.
        objective: makes another objective than that of the settings, on the accelerator's device, and seeds
            generators.
        progress: draw progress bars on standard error.

    Raises:
        FlairNasError: settings, text or folder that cannot be used; a loss that is not finite.
        RunStopped: after Ctrl-C; the message has the command that goes on.
        OSError: a folder that cannot be written, or a full disk; the last good checkpoint is kept.

    Example:
        >>> from flair_nas import SearchConfig, search_genotype
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "nodes": 2, "batch_size": 32, "bptt": 100}
        >>> config = SearchConfig(text="demo", epochs=1, learning_rate=1.0, device="cpu", **sizes)
        >>> result = search_genotype(config, "runs/search", progress=False)
        >>> len(result.genotype.nodes), len(result.history)
        (2, 1)
    """
    out = user_path(out)
    check_config(config, SearchConfig, SearchSettings)
    config.check()
    accelerator = make_accelerator(config.device, config.precision)
    command = "flair-nas search" if text is None and objective is None else None
    if command and accelerator.num_processes > 1:
        command = f"torchrun --nproc-per-node {accelerator.num_processes} -m flair_nas search"
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_main_logs(accelerator))
        for source in (config.fixed if config.learn == "intra" else None, *config.own.candidates):
            if source:
                warn_of_risks(source)
        if config.transformer.sublayers is not None:
            warn_of_risks(config.transformer.sublayers, config.transformer.optimizer)
        if config.learn == "intra" and changed(config, "carry"):
            log.warning("carry=%s is of gates that are searched, and none are; those of --fixed have their own: %s",
                        config.carry, f"--fixed NAME,carry={config.carry}")  # fmt: skip

        def open_folder() -> Run[SearchSettings]:
            may_change = [*PLACES, *get_kinds(ColumnFormat), "tasks"]  # the checkpoint has the fingerprint of the data
            may_change += ["init_range", "embedding_init_range", "frequency_bias"]  # of the first step
            may_change += ["epochs"] * config.is_extendable
            may_change += ["carry"] * (not config.history)  # without gates it has no meaning
            return stack.enter_context(open_run(out, config, may_change=may_change, quantity="search", command=command))

        run = by_main(accelerator, open_folder) or Run(out, config)  # the main process keeps the folder for all
        built = make_objective(config, accelerator, data=text, make=objective, progress=progress)
        return _Search(run, built, accelerator, progress).run_all()


class _Search:
    """Search in its folder."""

    def __init__(
        self, run: Run[SearchSettings], objective: Objective, accelerator: Accelerator, progress: bool
    ) -> None:
        self.run, self.config, self.objective, self.accelerator = run, run.config, objective, accelerator
        self.progress = progress and accelerator.is_main_process
        self.strategy = make_strategy(objective, self.config)
        self.guess = objective.guess()
        self.judged_against = objective.guess(self.strategy.judged_on)
        fixed = self.config.fixed_genotype()
        self.fixed = None if fixed is None else fixed.spec()
        self.epoch = 0  # the last whole one

    def run_all(self) -> SearchResult:
        """Search, or restore a finished search; return its result."""
        run, finished = self.run, self.run.resume(self._restore)
        by_main(self.accelerator, run.accept)
        if finished:
            extends = self.config.is_extendable and not self.strategy.converged()
            hint = "; --epochs extends it" if extends else ""
            log.warning("%s is finished, so nothing was searched%s", run.folder, hint)
        else:
            self._train()
        genotype = self._keep_genotype() if finished else self._describe_genotype()
        if self.accelerator.is_main_process:
            from flair_nas.drawing.charts import draw_progress

            draw_progress(run.history, run.folder / "progress.svg", self.objective.metric)
        verdict, learned = self._judge()
        return SearchResult(genotype, run.history, run.folder, self.objective.metric, verdict, learned)

    # --- epochs ---

    def _train(self) -> None:
        objective, epochs = self.objective, range(self.epoch + 1, self.config.epochs + 1)
        if not self.epoch:
            log_derived_settings(objective)
        steps = {epoch: objective.steps(epoch) for epoch in epochs}
        display = _Display(sum(steps.values()), self.config.epochs, self.strategy, objective.metric, self.progress)
        with contextlib.closing(display):
            objective.module.train()
            try:
                for epoch in epochs:
                    # asked first: there may be nothing to learn, or a run was stopped right after its last epoch
                    if self.strategy.converged():
                        log.info("nothing is left to learn after epoch %d of %d", self.epoch, self.config.epochs)
                        break
                    self._train_epoch(epoch, steps[epoch], display)
                self.strategy.finish(self.progress)
            except NotFiniteError as error:
                kept = f"The checkpoint of epoch {self.epoch} is kept: {self.run.checkpoints.newest}"
                raise NotFiniteError(f"{error} {kept if self.epoch else 'There is no checkpoint yet.'}") from None
        self._save(finished=True)

    def _train_epoch(self, epoch: int, steps: int, display: _Display) -> None:
        clock = EpochClock()
        self.objective.restart()
        training = validation = max_norm = 0.0
        num_training = num_validation = 0
        mean_training = mean_validation = None
        for step in range(steps):
            figures = self.strategy.step(epoch, step)
            max_norm = max(max_norm, figures.gradient_norm)
            if figures.training_loss is not None:
                training, num_training = training + figures.training_loss, num_training + 1
                mean_training = training / num_training
            if figures.validation_loss is not None:
                validation, num_validation = validation + figures.validation_loss, num_validation + 1
                mean_validation = validation / num_validation
            display.step(epoch, mean_training, mean_validation, figures.mad)
        clock.add_training()
        # each process has seen other columns; batch normalisation keeps their statistics
        average([buffer for buffer in self.objective.module.buffers() if buffer.is_floating_point()])
        loss, value, figures_of_tasks = self.objective.evaluate()
        if not math.isfinite(loss):
            parameters = self.objective.module.named_parameters()
            wrong = [name for name, weight in parameters if not weight.isfinite().all()]  # they are never saved
            if wrong or not self.strategy.bears_nan:
                norm = f"the largest gradient of the epoch had the norm {max_norm:g}"
                what = f"{wrong[0]}; {norm}" if wrong else f"the valid loss is {loss}"
                raise NotFiniteError(f"not finite after epoch {epoch}: {what}. {REMEDY}")
            log.warning("the valid loss after epoch %d is %s; the search goes on", epoch, loss)
        metric = self.objective.metric
        further: JSON = {
            "architecture_loss": mean_validation,
            **figures_of_tasks,
            **({f"{guess.key}_{metric.name}": metric.from_cost(guess.cost)} if (guess := self.guess) else {}),
            **self.strategy.end_epoch(),
            "steps": steps,
        }
        genotype = self.strategy.genotype().one_line()
        clock.add_evaluation()
        line = describe_epoch(epoch, mean_training, loss, metric, value, clock, genotype=genotype, **further)
        self.run.history.append(line)
        self.epoch = epoch
        self._save(finished=False)
        display.epoch(line)

    # --- the run folder ---

    def _save(self, finished: bool) -> None:
        state = {
            "epoch": self.epoch,
            "finished": finished,
            "text": self.objective.fingerprint,
            "fixed": self.fixed,
            "model": self.objective.module.state_dict(),
            "strategy": self.strategy.state_dict(),
            "random": gather(random_state()),
        }
        genotype = self._describe_genotype()

        def write() -> None:
            self.run.save(state)
            write_text(self.run.folder / "genotype.json", genotype.to_json())

        by_main(self.accelerator, write)

    def _restore(self, state: JSON) -> bool:
        """Restore a checkpoint; return True if the run was finished."""
        processes = self.accelerator.num_processes
        (data, before), (saved_data, saved_before) = (
            text.partition(" after ")[::2] for text in (self.objective.fingerprint, state["text"])
        )
        checks = [
            (data != saved_data,
             f"the data have changed since this search began; they are now those of {self.objective.name}"),
            (before != saved_before,
             f"the weights of {self.config.continual.after}, from which this search goes on, have changed since"),
            (self.fixed != state["fixed"],
             f"the genotype {self.config.fixed}, which stays fixed, was {state['fixed']} when this search began"),
            (processes != len(state["random"]),
             f"this search began with {len(state['random'])} processes and has {processes} now, so it would differ"),
        ]  # fmt: skip
        if changes := [message for wrong, message in checks if wrong]:
            newest = self.run.checkpoints.newest
            raise FlairNasError(f"{newest}: {'; '.join(changes)}; choose another folder, or restore what was there")
        self.objective.module.load_state_dict(state["model"])
        self.strategy.load_state_dict(state["strategy"])
        self.epoch = state["epoch"]
        restore_random_state(state["random"][self.accelerator.process_index])
        return bool(state["finished"]) and (self.epoch >= self.config.epochs or self.strategy.converged())

    def _keep_genotype(self) -> Candidate:
        """Return the genotype in the file of a finished search; write the file anew if it is missing or another."""
        genotype = self._describe_genotype()
        path = self.run.folder / "genotype.json"
        with contextlib.suppress(FlairNasError, OSError, ValueError):
            kept = make_space(self.config).read(json.loads(path.read_text(encoding="utf-8")))  # with its date
            if (kept, kept.options, kept.origin.get("figures")) == (genotype, genotype.options, self._figures()):
                return kept
        by_main(self.accelerator, lambda: write_text(path, genotype.to_json()))
        return genotype

    def _figures(self) -> JSON:
        """Return the figures for the genotype's provenance."""
        history, key = self.run.history, self.objective.metric.key
        return {
            "epochs": self.epoch,
            f"supernet_{key}": history[-1][key],
            "seconds": sum_seconds(history),
        }

    def _judge(self) -> tuple[str, bool]:
        """Return the verdict, and False if the search learned nothing."""
        history, strategy, metric = self.run.history, self.strategy, self.objective.metric
        figures = strategy.figures(history)
        if figures.get("tasks"):
            failure, learned = explain_tasks(self.objective.tasks, figures)
        else:
            losses = [line["train_loss"] for line in history]
            cost = strategy.cost(history, metric)
            failure = explain_failure(cost, self.judged_against, metric, losses, strategy.judged_on, strategy.longer)
            learned = not failure
        return " ".join(filter(None, (failure, strategy.verdict(history) if learned else ""))), learned

    def _describe_genotype(self) -> Candidate:
        """Return the genotype so far, with its provenance."""
        verdict, _ = self._judge()
        origin: JSON = {
            "method": self.config.own.method(self.config)
            or f"{self.config.strategy_name} search, seed {self.config.seed}",
            "corpus": self.objective.name,
            "command": "flair-nas search --config FILE, with the settings below that are not the defaults",
            "settings": self.config.portable(),
            "date": datetime.date.today().isoformat(),
            "figures": self._figures(),
            **({"verdict": verdict} if verdict else {}),
            "flair_nas": __version__,
        }
        return dataclasses.replace(self.strategy.genotype(), origin=origin)


class _Display:
    """Live lines: epoch, losses, MAD and time left in one, the present genotype in the other.

    Without `progress`, each epoch is logged instead.
    """

    def __init__(self, steps: int, epochs: int, strategy: Strategy, metric: Metric, progress: bool) -> None:
        self.steps, self.epochs, self.strategy, self.metric, self.progress = steps, epochs, strategy, metric, progress
        self.bar = tqdm(total=steps, unit="step", disable=not progress, leave=False, file=sys.stderr)
        self.line = tqdm(bar_format="{desc}", disable=not progress, leave=False, position=1, file=sys.stderr)
        self.started, self.steps_done = time.perf_counter(), 0

    def close(self) -> None:
        """Remove the lines."""
        self.line.close()
        self.bar.close()

    def step(self, epoch: int, training: float | None, validation: float | None, mad: Mapping[str, float]) -> None:
        """Move the bar; the losses are means over this epoch so far."""
        self.steps_done += 1
        if not self.progress:
            return
        if self.bar.n % 10 == 0:  # deriving takes longer than drawing
            parts = [f"train {self.metric.format_loss(training or 0.0)}"]
            if validation is not None:
                parts.append(f"valid {self.metric.format_loss(validation)}")
            parts += [f"MAD {name} {value:.4f}" for name, value in mad.items()]
            self.bar.set_description_str(f"epoch {epoch}/{self.epochs}", refresh=False)
            self.bar.set_postfix_str(", ".join(parts), refresh=False)
            self.line.set_description_str(self.strategy.genotype().one_line())
        self.bar.update()

    def epoch(self, line: JSON) -> None:
        """Log the line of the history of an epoch."""
        seconds = time.perf_counter() - self.started
        left = seconds / max(self.steps_done, 1) * (self.steps - self.steps_done)
        mad = "".join(f", MAD {name} {value:.4f}" for name, value in line.get("mad", {}).items())
        loss, valid = line["train_loss"], self.metric.shown(line[self.metric.key])
        training = "" if loss is None else f"train {self.metric.format_loss(loss)}, "
        (best,) = (line.get(key) for key in self.metric.best(0.0))
        if best is not None:  # the genotype is that of the best candidate, not of the one that trains
            best = self.metric.from_loss(best) if self.metric.from_loss else best
            valid += f", the best so far {self.metric.plain(best)}"
        tasks = "".join(
            f"; {name}: " + ", ".join(f"{key} {math.nan if value is None else value:.4g}" for key, value in of.items())
            for name, of in line.get("tasks", {}).items()
        )
        text = (
            f"epoch {line['epoch']} of {self.epochs}: {training}valid {valid}{mad}{tasks}, {line['seconds']:.0f} s, "
            f"{duration(left)} left; {line['genotype']}"
        )
        if self.progress:
            self.bar.write(text, file=sys.stderr)
        else:
            log.info("%s", text)
