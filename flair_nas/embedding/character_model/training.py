"""Training of Flair's character language models by Flair's recipe, with exact checkpoints, in one folder.

OUT/config.yaml     the resolved settings       OUT/forward/, OUT/backward/  one model each:
OUT/metrics.json    figures of all models         model.pt            for Flair
                                                  model.safetensors   the same as data, which runs no code
                                                  history.jsonl       a line per epoch
                                                  checkpoint.pt       and checkpoint-previous.pt, to resume from
"""

from __future__ import annotations

import logging
import math
import statistics
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import flair
import torch
from flair.data import Dictionary
from flair.models import LanguageModel
from flair.models.language_model import create_recurrent_layer  # type: ignore[attr-defined]  # ours takes layer specs
from flair.nn.recurrent import rnn_layers
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau
from tqdm import tqdm

from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.evaluation import CharacterScore, evaluate_columns, score_ids
from flair_nas.embedding.character_model.text import Splits, encode_characters, load_characters
from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.language_model.model import detach
from flair_nas.language_model.text.corpus import TextCorpus, batchify
from flair_nas.nn.layers import TEXT_LAYERS
from flair_nas.nn.state import RecurrentState
from flair_nas.runs.checkpoints import is_whole
from flair_nas.runs.device import autocast, check_precision
from flair_nas.runs.duration import duration
from flair_nas.runs.epoch_record import EpochClock, describe_cost, describe_epoch, sum_seconds
from flair_nas.runs.memory import check_fits
from flair_nas.runs.metric import BITS, to_bits
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run, open_run
from flair_nas.settings.fields import check_config
from flair_nas.settings.resolve import read_run_settings
from flair_nas.tagging.data.character_models import DATA, PICKLE, load_character_model, save_character_model
from flair_nas.tagging.quiet import flair_device
from flair_nas.tagging.registration import build_rnn

log = logging.getLogger("flair_nas")

_PLAIN = ("epoch", "split", "next_step", "sums", "records", "best_loss", "best_epoch")
"""Attributes of a training that checkpoints hold unchanged."""

_SECONDS_BETWEEN_CHECKPOINTS = 300.0  # within a split
_TIMED_STEPS = 4  # of an estimate; the first one does not count


def train_character_models(
    config: CharacterModelConfig, out: str | Path, *, progress: bool = True
) -> dict[str, dict[str, Any]]:
    """Train the character models of one or both directions and write everything to one folder.

    The recipe is that of Flair's `LanguageModelTrainer`. Lines are shuffled within splits. The state is carried through
    a split. The learning rate depends on the loss on dev after each split.

    Args:
        config: the settings.
        out: a folder that is new or empty, or that of an unfinished run with the same settings. Such a run resumes
            with the same result as one that never stopped. `epochs` and `direction` may grow.
        progress: draw a progress bar on standard error.

    Returns:
        The figures of each direction: bits per character on dev and test, sizes, times.

    Raises:
        FlairNasError: settings, text or folder cannot be used, or a loss is not finite.
        RunStopped: after Ctrl-C; the last checkpoint, if there is one yet, is on disk.
        OSError: the folder cannot be written, or the disk is full; the last good checkpoint is kept.

    Example:
        >>> from flair_nas import CharacterModelConfig, train_character_models
        >>> sizes = {"hidden_size": 8, "embedding_size": 8, "batch_size": 50, "bptt": 100, "split_size": 100_000}
        >>> config = CharacterModelConfig(text="demo", direction="forward", epochs=1, device="cpu", **sizes)
        >>> figures = train_character_models(config, "runs/characters", progress=False)
        >>> figures["forward"]["dev_bits"] > 0
        True
    """
    check_config(config, CharacterModelConfig)
    with flair_device(config.device):
        check_precision(config.precision, flair.device)
        if config.rnn.lower() not in rnn_layers:  # a bad name should not cost the time that a text takes to load
            build_rnn(config.rnn, 1, 1, names=TEXT_LAYERS, setting="rnn")
        with open_run(out, config, may_change=config.may_change, command="flair-nas charlm train") as run:
            return train_directions(run, progress)


def train_directions(run: Run[CharacterModelConfig], progress: bool) -> dict[str, dict[str, Any]]:
    """Train the models of an open run on `flair.device`, and return the figures of each direction."""
    config = run.config
    if (written := run.folder / "config.yaml").exists():
        before = read_run_settings(written, CharacterModelConfig)
        if {*before.directions()} - {*config.directions()}:
            change = f"direction was {before.direction} and cannot become {config.direction}"
            raise FlairNasError(f"{run.folder}: {change}; --direction both goes on with both")
    text = load_characters(config, progress)
    figures = {}
    for direction in config.directions():
        figures[direction] = _train_direction(run.part(direction), *text, progress)
    run.accept()  # not yet done if all were finished
    run.finish({**figures, "epochs": max(of["epochs"] for of in figures.values())})
    return figures


def _load_best(folder: Path) -> LanguageModel:
    """Load the best model of a direction. Write its form as data again if that is lost."""
    model = load_character_model(folder / PICKLE)
    try:
        load_character_model(folder / DATA)
    except FlairNasError as error:
        log.warning("%s; it is written again", error)
        save_character_model(model, folder)
    return model


def _train_direction(
    run: Run[CharacterModelConfig], corpus: TextCorpus, dictionary: Dictionary, progress: bool
) -> dict[str, Any]:
    """Train the model of one direction unless it is finished, and return its figures."""
    figures = run.figures("dev_bits")
    is_same = figures is not None and figures["fingerprint"] == corpus.fingerprint
    if figures and is_same and figures["epochs"] >= run.config.epochs and is_whole(run.folder / PICKLE):
        _load_best(run.folder)
        log.warning(
            "%s is finished (epochs: %d), so nothing was trained; more epochs extend it", run.folder, figures["epochs"]
        )
        return figures
    training = _Training(run.config, corpus, dictionary, run.folder.name)
    training.run = run
    run.resume(training.restore)
    run.accept()
    training.train(progress)
    return _finish(training)


def measure_cost(config: CharacterModelConfig, progress: bool = True) -> tuple[float, str]:
    """Measure a few steps, and return the seconds of a whole training and a description of its cost.

    Only the ids of the text are written.
    """
    check_config(config, CharacterModelConfig)
    with flair_device(config.device):
        check_precision(config.precision, flair.device)
        training = _Training(config, *load_characters(config, progress), config.directions()[0])
        columns, hidden = training.splits.columns(0, 0, training.forward), None
        times = []
        for step in range(min(_TIMED_STEPS, training.steps(columns))):
            start = time.perf_counter()
            _, hidden = training.step(columns, step, hidden)
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times[1:] or times)
        start = time.perf_counter()
        evaluate_columns(training.model, training.valid[: 2 * config.bptt], config.bptt)
        evaluation = (time.perf_counter() - start) * len(training.valid) / min(len(training.valid), 2 * config.bptt)
    steps, splits = training.splits.count_steps(), len(training.splits)
    epoch = steps * seconds + splits * evaluation
    whole = epoch * config.epochs * len(config.directions())
    parameters = sum(p.numel() for p in training.model.parameters())
    return whole, (
        f"parameters: {parameters:,}, of characters: {len(training.model.dictionary):,}\na step: {seconds:.2f} s; the "
        f"evaluation after a split: {duration(evaluation)}\nan epoch of {splits} splits and {steps:,} steps: "
        f"{duration(epoch)}\nall {config.epochs} epochs, {' and '.join(config.directions())}: {duration(whole)}"
    )


class _Training:
    """A training between two steps. It saves to `run`."""

    run: Run[CharacterModelConfig]

    def __init__(
        self, config: CharacterModelConfig, corpus: TextCorpus, dictionary: Dictionary, direction: str
    ) -> None:
        self.config, self.corpus = config, corpus
        self.direction, self.forward = direction, direction == "forward"
        self.splits = Splits(corpus, dictionary, config)
        sizes = config.hidden_size, config.layers, config.embedding_size
        layer = partial(create_recurrent_layer, config.rnn, config.embedding_size, config.hidden_size, config.layers)
        check_fits(lambda: layer()[0], flair.device, f"hidden_size {config.hidden_size}")
        torch.manual_seed(config.seed)
        self.model = LanguageModel(dictionary, self.forward, *sizes, dropout=config.dropout, recurrent_type=config.rnn)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.learning_rate)
        self.scheduler = ReduceLROnPlateau(self.optimizer, factor=config.anneal_factor, patience=config.patience)
        valid = encode_characters(corpus.valid, corpus.vocabulary.words, dictionary)
        self.valid = batchify(valid[:: 1 if self.forward else -1], config.batch_size, corpus.labels["valid"])  # [T, B]
        self.epoch = self.split = 0  # whole epochs, and whole splits of the next one
        self.next_step = 0  # of the split
        self.hidden: Any = None  # the state before that step; None at the beginning of a split
        self.sums = [0.0, 0.0]  # losses and steps of this epoch
        self.records: list[dict[str, Any]] = []  # of the splits of this epoch
        self.clock = EpochClock()
        self.best_loss, self.best_epoch = math.inf, 0

    # --- checkpoints ---

    def _describe(self) -> dict[str, Any]:
        """Return the values that a resumed run must keep, by their names in errors."""
        return {
            "text": self.corpus.fingerprint,
            "direction": self.direction,
            "cut of the text into splits": self.splits.bounds,
            "layer": str(self.model.recurrent_type),
            "dictionary": self.model.dictionary.get_items(),
        }

    def save(self) -> None:
        """Write a checkpoint."""
        self.run.save(
            {name: getattr(self, name) for name in _PLAIN}
            | {
                "fixed": self._describe(),
                "clock": asdict(self.clock),
                "hidden": _to_plain(self.hidden),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "random": random_state(),
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Load a checkpoint; refuse one of another text, layer or dictionary."""
        self.run.check_same(state["fixed"], self._describe())
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        for name in _PLAIN:
            setattr(self, name, state[name])
        self.clock = EpochClock(**state["clock"])
        self.hidden = _from_plain(state["hidden"])
        restore_random_state(state["random"])

    # --- training ---

    def steps(self, columns: Tensor) -> int:
        """Return the number of steps over columns [T, B]."""
        return math.ceil((len(columns) - 1) / self.config.bptt)

    def step(self, columns: Tensor, number: int, hidden: Any) -> tuple[float, Any]:
        """Update the weights by a segment of columns [T, B] from a state; return its loss and the state after it."""
        config, model = self.config, self.model
        model.train()
        hidden = model.init_hidden(config.batch_size) if hidden is None else hidden
        piece = columns[number * config.bptt : (number + 1) * config.bptt + 1].to(flair.device, torch.long)
        tokens, targets = piece[:-1], piece[1:]  # [T, B] each
        with autocast(config.precision, flair.device):
            scores, _, hidden = model.forward(tokens, hidden)  # [T, B, V]
            loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        value = loss.item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            place = f"epoch {self.epoch + 1}, split {self.split + 1}, step {number + 1}"
            raise NotFiniteError(
                f"not finite in {place}: the loss is {value:g}, the norm of the gradients {norm:g}. "
                f"A lower learning_rate (it is {config.learning_rate:g}) in a new folder may help"
            )
        self.optimizer.step()
        return value, detach(hidden)

    def train(self, progress: bool) -> None:
        """Train until the last epoch."""
        config, direction = self.config, self.direction
        steps = self.splits.count_steps()
        counts: dict[str, Any] = {"total": config.epochs * steps, "initial": self.epoch * steps + int(self.sums[1])}
        with tqdm(**counts, unit="step", desc=direction, disable=not progress, leave=False) as bar:
            try:
                while self.epoch < config.epochs:
                    order = self.splits.order(self.epoch)
                    while self.split < len(order):
                        self._train_split(order[self.split], bar)
                        record = self.records[-1]
                        text = f"{direction}, epoch {self.epoch + 1} of {config.epochs}, split {self.split} of "
                        text += f"{len(order)}: {record['dev_bits']:.4f} bits per character on dev"
                        text += " (the best)" if record["dev_loss"] == self.best_loss else ""
                        text += f", learning rate {record['learning_rate']:g}, {record['seconds']:.0f} s"
                        bar.write(text, file=sys.stderr) if progress else log.info("%s", text)
                        if self.split < len(order):
                            self.save()
                    self._end_epoch()
            except KeyboardInterrupt as stop:
                where = f"{direction}, in epoch {min(self.epoch + 1, config.epochs)} of {config.epochs}"
                raise KeyboardInterrupt(f"{str(stop) or 'stopped'} {where}") from None

    def _train_split(self, number: int, bar: tqdm[Any]) -> None:
        """Train on the rest of a split, compute the loss on dev, and save the model if it is the best."""
        columns = self.splits.columns(number, self.epoch, self.forward)
        self.clock.restart()
        saved = time.monotonic()
        while self.next_step < self.steps(columns):
            loss, self.hidden = self.step(columns, self.next_step, self.hidden)
            self.sums = [self.sums[0] + loss, self.sums[1] + 1]
            self.next_step += 1
            bar.set_postfix_str(f"{to_bits(self.sums[0] / self.sums[1]):.3f} bits", refresh=False)
            bar.update()
            if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                self.clock.add_training()
                self.save()
                self.clock.restart()
                saved = time.monotonic()
        self.clock.add_training()
        self.save()  # before the evaluation, so that a kill does not cost the split
        self.clock.restart()
        loss = evaluate_columns(self.model, self.valid, self.config.bptt)
        self.clock.add_evaluation()
        if not math.isfinite(loss):
            raise NotFiniteError(f"not finite: the loss on dev is {loss:g} after split {self.split + 1}")
        rate = self.optimizer.param_groups[0]["lr"]
        self.scheduler.step(loss)
        if loss < self.best_loss:
            self.best_loss, self.best_epoch = loss, self.epoch + 1
            save_character_model(self.model, self.run.folder)
        record = {"split": number, "dev_loss": loss, "dev_bits": to_bits(loss), "learning_rate": rate}
        for name in ("seconds", "cpu_seconds"):
            record[name] = getattr(self.clock, name) - sum(other[name] for other in self.records)
        self.records.append(record)
        self.split, self.next_step, self.hidden = self.split + 1, 0, None

    def _end_epoch(self) -> None:
        train_loss = self.sums[0] / self.sums[1]
        best = min(self.records, key=lambda record: record["dev_loss"])
        self.epoch += 1
        figures = train_loss, best["dev_loss"], BITS, best["dev_bits"], self.clock
        self.run.history.append(describe_epoch(self.epoch, *figures, splits=self.records))
        self.split, self.records, self.sums, self.clock = 0, [], [0.0, 0.0], EpochClock()
        self.save()


def _to_plain(hidden: Any) -> Any:
    """Return a state as tuples of tensors, which checkpoints can hold."""
    return hidden and [tuple(part) if isinstance(part, RecurrentState) else part for part in hidden]


def _from_plain(hidden: Any) -> Any:
    """Return the state that `_to_plain` turned into tuples, on Flair's device."""
    if hidden is None:
        return None
    return tuple(
        RecurrentState(*part).map(lambda tensor: tensor.to(flair.device))
        if isinstance(part, tuple)
        else part.to(flair.device)
        for part in hidden
    )


def _finish(training: _Training) -> dict[str, Any]:
    """Score the best model, and write and return the figures."""
    run, config, history, corpus = training.run, training.config, training.run.history, training.corpus
    model = _load_best(run.folder)
    num_characters = len(model.dictionary)
    figures: dict[str, Any] = {"text": corpus.name, "fingerprint": corpus.fingerprint, "rnn": config.rnn}
    figures |= {"epochs": training.epoch, "best_epoch": training.best_epoch, "characters": num_characters}
    for part, ids in (("dev", corpus.valid), ("test", corpus.test)):
        score: CharacterScore | None = None
        if ids is not None:
            characters = len(encode_characters(ids, corpus.vocabulary.words, model.dictionary))
            columns = min(config.batch_size, characters // 2)  # a test part may be short
            score = score_ids(model, ids, corpus.vocabulary, columns)
        for name in CharacterScore._fields:
            figures[f"{part}_{name}"] = score and getattr(score, name)
    if figures["dev_bits"] > math.log2(num_characters):
        fault = f"{figures['dev_bits']:.2f} bits per character on dev, worse than a guess among {num_characters}"
        log.warning("%s learned nothing: %s; a lower --learning-rate in a new folder may help", run.folder, fault)
    figures |= {
        "train_characters": len(corpus.train),
        **describe_cost(model, model.rnn, history),
        "seconds": sum_seconds(history),
        "threads": torch.get_num_threads(),
        "device": str(flair.device),
    }
    return run.finish(figures)
