"""Actions before and after epochs of Flair's trainer: exact checkpoints, dev evaluation, annealing, progress."""

from __future__ import annotations

import logging
import math
import statistics
import sys
from typing import Any

import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from flair.trainers.plugins.base import TrainerPlugin, TrainingInterrupt
from flair.trainers.plugins.metric_records import MetricRecord
from flair.training_utils import AnnealOnPlateau
from tqdm import tqdm

from flair_nas.errors import FlairNasError, shown
from flair_nas.nn.recurrent_layer import identify_layer
from flair_nas.runs.epoch_record import EpochClock, describe_epoch
from flair_nas.runs.metric import F1
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run
from flair_nas.settings.optimizer import warmup_factor
from flair_nas.storage.files import whole_file
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of
from flair_nas.tagging.data.frozen_embeddings import describe_state, frozen_members
from flair_nas.tagging.data.table_embeddings import EnglishEmbeddings
from flair_nas.tagging.evaluation import describe_fault, evaluate_tagger, forget_changing_embeddings

log = logging.getLogger("flair_nas")


class EpochPlugin(TrainerPlugin):
    """A plugin of Flair's trainer that evaluates on dev, anneals, saves the best model and writes checkpoints."""

    def __init__(
        self, run: Run[TaggerConfig], tagger: SequenceTagger, corpus: TaggingCorpus, seed: int, progress: bool
    ) -> None:
        super().__init__()
        config: TaggerConfig = run.config
        self.run, self.config, self.tagger, self.seed, self.progress = run, config, tagger, seed, progress
        frozen = frozen_members(tagger.embeddings)
        weights = {
            m.name: m.checksum if isinstance(m, EnglishEmbeddings) else repr(describe_state(m.state_dict()))
            for m in frozen
        }
        self.fixed: dict[str, Any] = {  # what a resumed run must not change, by its name in errors
            "corpus": corpus.sha256,
            "labelled sentences": corpus.taught and corpus.taught.sha256,
            "seed": seed,
            **{f"file of {name}": description for name, description in weights.items()},
            "layer": identify_layer(tagger.rnn),
        }
        places = {id(member) for member in frozen}
        self.frozen = tuple(f"{name}." for name, module in tagger.named_modules() if id(module) in places)
        self.tagging_corpus = corpus
        self.dev = sentences_of(corpus.corpus.dev)
        self.epoch = 0  # the last whole epoch
        self.best_epoch = 0
        self.best: tuple[float, float] = (-1.0, 0.0)  # F1, or accuracy of token labels, and minus loss on dev
        self.exhausted = False
        self.interrupted = False
        self.resumed: dict[str, Any] | None = None

    def restore(self, state: dict[str, Any]) -> int:
        """Restore all but the optimizer, which the trainer makes later, and return the number of epochs done."""
        self.run.check_same(dict.fromkeys(self.fixed) | state["fixed"], self.fixed)  # a name holds a checksum
        present = self.tagger.state_dict()  # checkpoints lack frozen weights, and former ones have them
        frozen = {name: weight for name, weight in present.items() if name.startswith(self.frozen)}
        self.tagger.load_state_dict(frozen | state["model"])
        self.epoch, self.best_epoch = state["epoch"], state["best_epoch"]
        self.best = state["best"][0], state["best"][1]
        self.exhausted, self.resumed = state["exhausted"], state
        return self.config.epochs if self.exhausted else self.epoch

    def save(self) -> None:
        """Write the history and a checkpoint."""
        self.run.save(
            {
                "fixed": self.fixed,
                "epoch": self.epoch,
                "best_epoch": self.best_epoch,
                "best": list(self.best),
                "exhausted": self.exhausted,
                "model": {name: w for name, w in self.tagger.state_dict().items() if not name.startswith(self.frozen)},
                "optimizer": self.trainer.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "random": random_state(),
            }
        )

    @TrainerPlugin.hook
    def after_setup(self, **_: Any) -> None:
        """Make the scheduler, and restore the optimizer and the random state of a checkpoint."""
        optimizer, path = self.trainer.optimizer, self.run.checkpoints.newest
        self.scheduler = AnnealOnPlateau(
            optimizer,
            mode="min" if self.config.train_with_dev else "max",
            factor=self.config.anneal_factor,
            patience=self.config.patience,
        )
        if self.resumed is None:
            self.save()
        else:
            try:
                optimizer.load_state_dict(self.resumed["optimizer"])
                self.scheduler.load_state_dict(self.resumed["scheduler"])
                restore_random_state(self.resumed["random"])
            except Exception as error:  # of another kind of run, or of other sizes
                raise FlairNasError(f"{path}: this checkpoint cannot be used ({shown(error)}); give it back") from None
            self.resumed = None
        self.batches = math.ceil(len(self.trainer.corpus.train) / self.config.batch_size)
        left = (self.config.epochs - self.epoch) * self.batches
        self.bar = tqdm(total=left, desc=f"seed {self.seed}", unit="batch", disable=not self.progress, leave=False)

    @TrainerPlugin.hook
    def before_training_epoch(self, epoch: int, **_: Any) -> None:
        """Start the clock, and read the learning rate of this epoch."""
        self.clock = EpochClock()
        self.rate = self.trainer.optimizer.param_groups[0]["lr"]
        self.losses: list[float] = []
        self.bar.set_description(f"seed {self.seed}, epoch {epoch}/{self.config.epochs}")

    @TrainerPlugin.hook
    def metric_recorded(self, record: MetricRecord) -> None:
        """Collect the losses of the batches."""
        if tuple(record.name) == ("train", "batch_loss"):
            self.losses.append(float(record.value))

    @TrainerPlugin.hook
    def before_training_optimizer_step(self, batch: list[Sentence], batch_no: int, epoch: int, **_: Any) -> None:
        """Refuse a gradient that is not finite, before it reaches the weights, and warm up the learning rate."""
        gradients = [p.grad for p in self.tagger.parameters() if p.grad is not None]
        if gradients and not torch.isfinite(torch.stack([g.sum() for g in gradients]).sum()):
            raise FlairNasError(
                f"not finite in epoch {epoch}, batch {batch_no + 1} (seed {self.seed}): "
                f"{describe_fault(self.tagger, batch)} {self._describe_checkpoint()}"
            )
        self._set_rate(self.rate * warmup_factor((epoch - 1) * self.batches + batch_no + 1, self.config.warmup_steps))

    def _set_rate(self, rate: float) -> None:
        for group in self.trainer.optimizer.param_groups:
            group["lr"] = rate

    @TrainerPlugin.hook
    def after_training_batch(self, batch: list[Sentence], **_: Any) -> None:
        """Forget pooled vectors, which change in the next epoch, and move the progress bar."""
        forget_changing_embeddings(self.tagger, batch)
        loss = f"{self.losses[-1]:.3f}" if self.losses else "-"
        dev = f"{self.best[0]:.2f}" if self.best[0] >= 0 else "-"
        self.bar.set_postfix_str(f"loss {loss}, best on dev {dev}", refresh=False)
        self.bar.update()

    @TrainerPlugin.hook
    def after_evaluation(self, epoch: int, **_: Any) -> None:
        """Evaluate on dev, save the best model, anneal, and write history and checkpoint."""
        self.clock.add_training()
        try:
            storage = self.config.embeddings_storage_mode
            evaluation = evaluate_tagger(self.tagger, self.dev, batch_size=64, storage=storage, compare=False)
        except FlairNasError as error:
            raise FlairNasError(
                f"dev, after epoch {epoch} (seed {self.seed}): {error} {self._describe_checkpoint()}"
            ) from None
        self.clock.add_evaluation()
        train_loss = statistics.mean(self.losses) if self.losses else None
        figures = train_loss, evaluation.loss, F1, evaluation.f1, self.clock
        rate = self.trainer.optimizer.param_groups[0]["lr"]
        self.run.history.append(describe_epoch(epoch, *figures, learning_rate=rate))
        self._set_rate(self.rate)  # after a warm-up in this epoch
        self.epoch = epoch
        score = (evaluation.f1, -evaluation.loss)
        if score > self.best or self.config.train_with_dev:
            self.best, self.best_epoch = score, epoch
            card: dict[str, Any] = self.tagger.model_card or {}
            card.get("training_parameters", {}).pop("base_path", None)  # a private path, should the model be published
            with whole_file(self.run.folder / "model.pt") as temporary:
                self.tagger.save(temporary)
        if self.config.train_with_dev:
            self.scheduler.step(train_loss)
        else:
            self.scheduler.step(evaluation.f1, evaluation.loss or None)
        rate = self.trainer.optimizer.param_groups[0]["lr"]
        self.exhausted = rate < self.config.min_learning_rate
        self.save()
        text = f"seed {self.seed}, epoch {epoch} of {self.config.epochs}: loss {train_loss or 0:.4f}, "
        text += f"dev {evaluation.f1:.2f}, {self.clock.seconds:.1f} s"
        self.bar.write(text, file=sys.stderr) if self.progress else log.info("%s", text)
        if self.exhausted:
            raise TrainingInterrupt(f"learning rate {rate:g} is below {self.config.min_learning_rate:g}")

    @TrainerPlugin.hook
    def training_interrupt(self, **_: Any) -> None:
        """Record a Ctrl-C, which Flair treats like the end of annealing."""
        self.interrupted = not self.exhausted

    @TrainerPlugin.hook
    def _training_finally(self, **_: Any) -> None:
        self.bar.close()

    def _describe_checkpoint(self) -> str:
        return f"The checkpoint of epoch {self.epoch} is kept: {self.run.checkpoints.newest}"
