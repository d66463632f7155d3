"""Training of language models: SGD, then averaged SGD, with an exact checkpoint after each epoch, in one folder.

OUT/config.yaml      the resolved settings          OUT/model.pt       the model of the epoch best on dev
OUT/history.jsonl    a line per epoch               OUT/checkpoint.pt  state of a stopped run to resume, and
OUT/metrics.json     perplexities, sizes, times                        checkpoint-previous.pt, the one before
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn
from tqdm import tqdm

from flair_nas.errors import NotFiniteError, name_largest_gradient
from flair_nas.genotype.order import is_order
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.model import LanguageModel, LanguageModelLoss
from flair_nas.language_model.perplexity import StreamScore, evaluate_stream
from flair_nas.language_model.saved import (
    Layer,
    SavedLanguageModel,
    build_language_model,
    load_language_model,
    parse_layer,
    save_language_model,
)
from flair_nas.language_model.text.corpus import END, Ids, TextCorpus, batchify, load_text
from flair_nas.language_model.text.segments import Draw, segment_lengths
from flair_nas.library.layer_spec import warn_of_risks
from flair_nas.nn.recurrent_layer import identify_layer
from flair_nas.runs.device import autocast, check_precision, choose_device
from flair_nas.runs.epoch_record import EpochClock, Line, describe_cost, describe_epoch, sum_seconds
from flair_nas.runs.memory import check_fits
from flair_nas.runs.metric import PERPLEXITY, to_perplexity
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run, open_run
from flair_nas.settings.fields import changed, check_config
from flair_nas.settings.optimizer import OPTIMIZERS, warmup_factor

log = logging.getLogger("flair_nas")

KEYS = {"valid": "dev", "test": "test"}
"""Beginning of the keys of figures, by part of the text."""

_PLAIN = ("epoch", "best_epoch", "averaged_from", "rollbacks", "steps")
"""Attributes of a training that checkpoints hold unchanged."""

# draws from the global generator, whose state is in the checkpoint
_DRAW: Draw = (lambda: float(torch.rand(())), lambda mean, deviation: mean + deviation * float(torch.randn(())))


def train_language_model(
    config: LanguageModelConfig,
    out: str | Path,
    *,
    corpus: TextCorpus | None = None,
    parts: Sequence[str] = tuple(KEYS),
    progress: bool = True,
) -> dict[str, Any]:
    """Train a language model and write everything to one folder.

    Args:
        config: the settings.
        out: a folder that is new or empty, or the folder of an unfinished run with the same settings. Such a run
            resumes from its last checkpoint, with the same result as one that never stopped. `epochs` may grow.
        corpus: the text, as `load_text` returns it; `config.text` when None.
        parts: parts of the text, valid and test, that the best model is evaluated on at the end, if they exist.
        progress: draw a progress bar on standard error.

    Returns:
        The content of ``metrics.json``: perplexities of the best model on these parts, tokens, parameters, seconds per
        epoch, and the peak memory of the process so far. Perplexities are exact unless `eval_batch_size` is above 1.

    Raises:
        FlairNasError: settings, text or folder cannot be used, or a loss is not finite.
        RunStopped: after Ctrl-C; the checkpoint of the last whole epoch is on disk.
        OSError: the folder cannot be written, or the disk is full; the last good checkpoint is kept.

    Example:
        >>> from flair_nas import LanguageModelConfig, train_language_model
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "batch_size": 32, "bptt": 100, "eval_batch_size": 16}
        >>> config = LanguageModelConfig(text="demo", rnn="small-tanh", epochs=1, device="cpu", **sizes)
        >>> metrics = train_language_model(config, "runs/words", progress=False)
        >>> metrics["dev_perplexity"] > 1
        True
    """
    check_config(config, LanguageModelConfig)
    layer = parse_layer(config)  # a bad name should not cost the time that a text takes to load
    device = choose_device(config.device)
    check_precision(config.precision, device)
    command = "flair-nas lm train" if corpus is None else None
    with open_run(out, config, may_change=config.may_change, command=command) as run:
        if corpus is None:
            corpus = load_text(config.text, config, progress=progress)
        warn_of_risks(config.rnn, config.optimizer)
        if is_order(config.rnn) and changed(config, "input_dropout", "recurrent_dropout"):
            log.warning("a transformer has neither input_dropout nor recurrent_dropout; its dropout is in its spec")
        torch.manual_seed(config.seed)
        training = _Training(run, corpus, layer, device)
        run.resume(training.restore)
        run.accept()
        training.train(progress)
        return _finish(training, parts, progress)


class _Training:
    """A run between two epochs."""

    def __init__(self, run: Run[LanguageModelConfig], corpus: TextCorpus, layer: Layer, device: torch.device) -> None:
        config = run.config
        self.run, self.config, self.corpus, self.device = run, config, corpus, device
        self.genotype = layer[0]
        build = partial(build_language_model, config, len(corpus.vocabulary), layer)
        check_fits(build, device, f"hidden_size {config.hidden_size}")
        self.model = build().to(device)
        self.optimizer = self._new_optimizer()
        columns = batchify(corpus.train, config.batch_size).to(device)  # [T + 1, B]
        self.tokens, self.targets = columns[:-1], columns[1:]  # [T, B] each
        self.average: AveragedModel | None = None  # the mean of the weights after each step, of averaged SGD
        self.epoch = 0  # number of whole epochs
        self.best_epoch = 0
        self.averaged_from: int | None = None
        self.rollbacks = 0
        self.steps = 0  # that changed the weights

    def _new_optimizer(self) -> torch.optim.Optimizer:
        kind: type[torch.optim.SGD] = getattr(torch.optim, OPTIMIZERS[self.config.optimizer])  # all take these
        return kind(self.model.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay)

    def _new_average(self) -> AveragedModel:
        return AveragedModel(self.model, multi_avg_fn=get_swa_multi_avg_fn())  # the default is 30 times as slow

    @property
    def judged(self) -> LanguageModel:
        """The model that is evaluated and saved, which has the mean weights once averaging has begun."""
        return cast(LanguageModel, self.average.module) if self.average else self.model

    def _describe(self) -> dict[str, Any]:
        """Return the values that a resumed run must keep, by their names in errors."""
        return {"text": self.corpus.fingerprint, "layer": identify_layer(self.model.layer)}

    def save(self) -> None:
        """Write the history and a checkpoint."""
        self.run.save(
            {name: getattr(self, name) for name in _PLAIN}
            | {
                "fixed": self._describe(),
                "model": self.model.state_dict(),
                "average": self.average and self.average.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "random": random_state(),
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Load a checkpoint; refuse one of another text or layer."""
        self.run.check_same(state["fixed"], self._describe())
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["average"] is not None:
            self.average = self._new_average()
            self.average.load_state_dict(state["average"])
        state = {"steps": 0} | state  # former checkpoints have none
        for name in _PLAIN:
            setattr(self, name, state[name])
        restore_random_state(state["random"])

    def train(self, progress: bool) -> None:
        """Train until the last epoch."""
        left = (self.config.epochs - self.epoch) * len(self.tokens)
        with tqdm(total=max(left, 0), unit="step", disable=not progress, leave=False) as bar:
            try:
                while self.epoch < self.config.epochs:
                    try:
                        line = self._next_epoch(bar)
                    except NotFiniteError as fault:
                        self._roll_back(fault, bar)
                    else:
                        self._report(line, bar)
            except KeyboardInterrupt as stop:
                where = f"in epoch {min(self.epoch + 1, self.config.epochs)} of {self.config.epochs}"
                raise KeyboardInterrupt(f"{str(stop) or 'stopped'} {where}") from None

    def _report(self, line: Line, bar: tqdm[Any]) -> None:
        """Write the figures of an epoch above the progress bar, or log them if there is none."""
        text = f"epoch {line['epoch']} of {self.config.epochs}: perplexity {to_perplexity(line['train_loss']):.2f} in "
        text += f"training{', averaging' * line['averaged']}, {line['dev_perplexity']:.2f} on dev"
        text += f"{' (the best)' * (self.best_epoch == self.epoch)}, {line['seconds']:.1f} s"
        log.info("%s", text) if bar.disable else bar.write(text, file=sys.stderr)

    def _roll_back(self, fault: NotFiniteError, bar: tqdm[Any]) -> None:
        """Return to the best epoch, to go on with other random numbers; raise the fault if that is impossible."""
        config = self.config
        if not self.best_epoch or self.rollbacks >= config.rollbacks:
            newest = f"The last good checkpoint, of epoch {self.epoch}, is {self.run.checkpoints.newest}"
            back = f", after going back {self.rollbacks} times" if self.rollbacks else ""
            raise NotFiniteError(
                f"{fault} {newest if self.epoch else 'There is no checkpoint yet'}{back}. A lower learning_rate (it is "
                f"{config.learning_rate:g}) in a new folder may help"
            ) from None
        self.rollbacks += 1
        log.warning("%s Going back to epoch %d, for the %d. time", fault, self.best_epoch, self.rollbacks)
        self.model.load_state_dict(load_language_model(self.run.folder, self.device).model.state_dict())
        self.optimizer = self._new_optimizer()
        self.epoch = self.best_epoch
        del self.run.history[self.epoch :]
        bar.reset(total=(config.epochs - self.epoch) * len(self.tokens))
        is_averaged = self.averaged_from is not None and self.averaged_from <= self.epoch
        self.average = self._new_average() if is_averaged else None
        self.averaged_from = self.averaged_from if is_averaged else None
        self._maybe_average([line["dev_loss"] for line in self.run.history])
        self.save()

    def _next_epoch(self, bar: tqdm[Any]) -> Line:
        """Train and evaluate one epoch, save it, and return its line of the history."""
        bar.set_description(f"epoch {self.epoch + 1}/{self.config.epochs}")
        clock = EpochClock()
        train_loss = self._train(bar)
        clock.add_training()
        score = self._validate()
        clock.add_evaluation()
        figures = train_loss, score.loss, PERPLEXITY, score.perplexity, clock
        further = {"averaged": self.average is not None, "rollbacks": self.rollbacks}
        rate = self._learning_rate()
        self.epoch += 1
        line = describe_epoch(self.epoch, *figures, learning_rate=rate, **further)
        self.run.history.append(line)
        losses = [line["dev_loss"] for line in self.run.history]
        if losses[-1] < min(losses[:-1], default=math.inf):
            self.best_epoch = self.epoch
            self._save_model()
        self._maybe_average(losses)
        self.save()
        return line

    def _learning_rate(self) -> float:
        """Return the learning rate of the next epoch."""
        return float(self.config.learning_rate / 10 ** sum(self.epoch >= epoch for epoch in self.config.lower_after))

    def _train(self, bar: tqdm[Any]) -> float:
        """Train one epoch, and return its mean cross-entropy."""
        config, model = self.config, self.model
        model.train()
        parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        state, start, total = None, 0, 0.0
        lengths = segment_lengths(len(self.tokens), config.bptt, _DRAW if config.vary_length else None)
        valid = f"{self.run.history[-1]['dev_perplexity']:.2f}" if self.run.history else "-"
        rate = self._learning_rate()
        penalties = {"activation": config.activation, "slowness": config.slowness}
        for step, length in enumerate(lengths, start=1):
            piece = slice(start, start + length)
            start += length
            share = length / config.bptt if config.vary_length else 1  # a longer segment counts for more
            self.steps += 1
            for group in self.optimizer.param_groups:
                group["lr"] = rate * share * warmup_factor(self.steps, config.warmup_steps)
            with autocast(config.precision, self.device):
                loss = model.loss(self.tokens[piece], self.targets[piece], state, **penalties)
            self.optimizer.zero_grad()
            torch.autograd.backward(loss.total)
            gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
            total += length * self._clip(gradients, loss, step)
            self.optimizer.step()
            if self.average is not None:
                self.average.update_parameters(model)
            state = loss.state
            bar.set_postfix_str(f"perplexity {to_perplexity(total / start):.2f}, valid {valid}", refresh=False)
            bar.update(length)
        return total / start

    def _clip(self, gradients: dict[str, Tensor], loss: LanguageModelLoss, step: int) -> float:
        """Scale the gradients to a norm of at most `clip`, and return the cross-entropy. Refuse NaN and infinity."""
        norms = torch.stack([gradient.norm() for gradient in gradients.values()])
        norm = norms.norm()
        scale = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
        value, total, length = map(float, torch.stack([loss.cross_entropy, loss.total, norm]).tolist())
        if not all(map(math.isfinite, (to_perplexity(value), total, length))):
            largest = name_largest_gradient(dict(zip(gradients, norms.tolist())))
            raise NotFiniteError(
                f"not finite in epoch {self.epoch + 1}, step {step}: the loss is {total:g}, {largest}."
            )
        for gradient in gradients.values():
            gradient.mul_(scale)
        return value

    def _validate(self) -> StreamScore:
        valid = self.corpus.valid
        columns = max(1, min(self.config.valid_batch_size, len(valid) // 2))
        score = evaluate_stream(self.judged, valid, batch_size=columns, first=self.corpus.vocabulary.index(END))
        if not math.isfinite(score.perplexity):
            raise NotFiniteError(f"not finite: the loss on dev is {score.loss:g} after epoch {self.epoch + 1}.")
        return score

    def _save_model(self) -> None:
        origin = {
            "text": self.corpus.name,
            "fingerprint": self.corpus.fingerprint,
            "epoch": self.epoch,
            "dev_loss": self.run.history[-1]["dev_loss"],
            "averaged": self.average is not None,
        }
        saved = SavedLanguageModel(self.judged, self.corpus.vocabulary, self.config, self.genotype, origin)
        save_language_model(saved, self.run.folder / "model.pt")

    def _maybe_average(self, losses: list[float]) -> None:
        config = self.config
        due = config.average_after is not None and self.epoch >= config.average_after
        if config.averaging and self.average is None and (due or stops_improving(losses, config.patience)):
            self.average = self._new_average()
            self.averaged_from = self.epoch + 1


def stops_improving(losses: list[float], patience: int) -> bool:
    """Return True if the last loss exceeds the best one of more than `patience` epochs ago (Merity et al., 2018)."""
    earlier = losses[: -1 - patience]
    return bool(earlier) and losses[-1] > min(earlier)


def _finish(training: _Training, parts: Sequence[str], progress: bool) -> dict[str, Any]:
    """Evaluate the best model, write the figures and return them. If that is done already, read them."""
    run, config, corpus, history = training.run, training.config, training.corpus, training.run.history
    before = run.figures("eval_batch_size", "dev_perplexity", "scored")
    is_scored = before and before["eval_batch_size"] == config.eval_batch_size and {*parts} <= {*before["scored"]}
    if before and is_scored and before["epochs"] >= config.epochs:
        log.warning(
            "%s is finished (epochs: %d), so nothing was trained; --epochs extends it", run.folder, training.epoch
        )
        return before
    model = load_language_model(run.folder, training.device).model
    figures: dict[str, Any] = {
        "text": corpus.name,
        "fingerprint": corpus.fingerprint,
        "rnn": config.rnn,
        "genotype": training.genotype and training.genotype.one_line(),
        "epochs": training.epoch,
        "best_epoch": training.best_epoch,
        "averaged_from": training.averaged_from,
        "rollbacks": training.rollbacks,
        "unit": config.unit,
        "vocabulary": len(corpus.vocabulary),
        "train_tokens": len(corpus.train),
        "eval_batch_size": config.eval_batch_size,
        "scored": list(parts),
    }
    for part, name in KEYS.items():
        score = _evaluate(training, model, part, progress) if part in parts else None
        figures |= {f"{name}_{figure}": getattr(score, figure, None) for figure in StreamScore._fields}
        figures[f"{name}_unknown_share"] = corpus.unknown_shares.get(part)
    figures |= {
        **describe_cost(model, model.layer, history),
        "seconds": sum_seconds(history),
        "threads": torch.get_num_threads(),
        "device": str(training.device),
    }
    return run.finish(figures)


def _evaluate(training: _Training, model: LanguageModel, part: str, progress: bool) -> StreamScore | None:
    """Return the score of a model on a whole part, or None if the text lacks it."""
    config, corpus = training.config, training.corpus
    ids: Ids | None = getattr(corpus, part)
    if ids is None:
        return None
    first = corpus.vocabulary.index(END)
    score = evaluate_stream(model, ids, batch_size=config.eval_batch_size, first=first, progress=progress)
    if not math.isfinite(score.perplexity):
        raise NotFiniteError(
            f"not finite: the loss of {training.run.folder / 'model.pt'} on the whole of {part} is {score.loss:g}: its "
            f"states grow with the text. Train it in a new folder with a lower learning_rate (it is "
            f"{config.learning_rate:g}); a layer with a state gate, with carry=ungated"
        )
    return score
