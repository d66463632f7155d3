"""What happens around the epochs of Flair's trainer: exact checkpoints, dev evaluation, annealing, progress."""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from flair.trainers.plugins.base import TrainerPlugin, TrainingInterrupt
from flair.training_utils import AnnealOnPlateau
from tqdm import tqdm

from flair_nas.errors import FlairNasError, shown
from flair_nas.library.layer_spec import comparable
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runs.run import Run
from flair_nas.storage.files import whole_file
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of
from flair_nas.tagging.evaluation import (
    describe_fault,
    evaluate_tagger,
    forget_changing_embeddings,
    has_unlabelled_tokens,
)
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.rnn_type import describe_rnn

log = logging.getLogger("flair_nas")


class EpochPlugin(TrainerPlugin):
    """What happens around the epochs of Flair's trainer: progress, dev evaluation, annealing, saving."""

    def __init__(self, run: Run, tagger: SequenceTagger, corpus: TaggingCorpus, seed: int, progress: bool) -> None:
        super().__init__()
        config: TaggerConfig = run.config
        self.run, self.config, self.tagger, self.seed, self.progress = run, config, tagger, seed, progress
        self.corpus_read = corpus
        self.dev = sentences_of(corpus.corpus.dev)
        self.epoch = 0  # the last whole epoch
        self.best_epoch = 0
        self.best: tuple[float, float] = (-1.0, 0.0)  # F1, or accuracy of token labels, and minus loss on dev
        self.exhausted = False
        self.interrupted = False
        self.resumed: dict[str, Any] | None = None

    # --- checkpoints ---

    def restore(self, state: dict[str, Any]) -> int:
        """Takes a checkpoint; what is of the optimizer is put in place once the trainer has one.

        Returns:
            The epoch to go on from.
        """
        path = self.run.checkpoints.newest
        check_same_corpus(path, state["corpus_sha256"], self.corpus_read)
        if state.get("seed", self.seed) != self.seed:  # older ones do not tell
            raise FlairNasError(f"{path}: this checkpoint is of seed {state['seed']}, not {self.seed}; give it back")
        if comparable(state["architecture"]) != _architecture(self.tagger):
            raise FlairNasError(
                f"{path}: {self.config.rnn} stood for another architecture when this run began "
                f"({state['architecture']}); choose another folder, or give back the genotype file"
            )
        self.tagger.load_state_dict(state["model"])
        self.epoch, self.best_epoch = state["epoch"], state["best_epoch"]
        f1, loss = state["best"]
        self.best = (float(f1), float(loss))
        self.exhausted, self.resumed = state["exhausted"], state
        if self.best_epoch and is_of_former_accuracy(state, self.corpus_read):
            self._score_anew(state["scheduler"])
        return self.config.epochs if self.exhausted else self.epoch

    def _score_anew(self, scheduler: dict[str, Any]) -> None:
        """Put the accuracy of the best model so far in place of the one that left out tokens without a label."""
        best, storage = load_tagger(self.run.folder / "model.pt"), self.config.embeddings_storage_mode
        found = evaluate_tagger(best, self.dev, batch_size=64, storage=storage, compare=False)
        log.warning(
            "seed %d: accuracy left out words without a label, up to epoch %d: epoch %d, the best by that, was %.2f on "
            "dev and is %.2f with all words, by which the next epochs are judged",
            *(self.seed, self.epoch, self.best_epoch, self.best[0], found.f1),
        )
        self.best = (found.f1, -found.loss)
        if not self.config.train_with_dev:
            scheduler["best"] = found.f1

    def save(self) -> None:
        """Writes the history and the checkpoint of this instant."""
        self.run.save(
            {
                "seed": self.seed,
                "epoch": self.epoch,
                "best_epoch": self.best_epoch,
                "best": list(self.best),
                "exhausted": self.exhausted,
                "corpus_sha256": self.corpus_read.sha256,
                "all_tokens": True,
                "architecture": _architecture(self.tagger),
                "model": self.tagger.state_dict(),
                "optimizer": self.trainer.optimizer.state_dict(),
                "scheduler": self._of_scheduler(),
                "random": random_state(),
            }
        )

    def _of_scheduler(self) -> dict[str, Any]:
        """What annealing remembers."""
        return {k: v for k, v in vars(self.scheduler).items() if isinstance(v, (int, float, str, type(None)))}

    @TrainerPlugin.hook
    def after_setup(self, **_: Any) -> None:
        """Makes the scheduler, and puts a checkpoint in place if there is one."""
        optimizer = self.trainer.optimizer
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
                saved = self.resumed["scheduler"]
                vars(self.scheduler).update({name: saved[name] for name in self._of_scheduler() if name in saved})
                restore_random_state(self.resumed["random"])
            except Exception as error:  # of another kind of run, or of other sizes
                path = self.run.checkpoints.newest
                raise FlairNasError(f"{path}: this checkpoint cannot be used ({shown(error)}); give it back") from None
            self.resumed = None
        batches = -(-len(self.trainer.corpus.train) // self.config.batch_size)
        left = (self.config.epochs - self.epoch) * batches
        self.bar = tqdm(total=left, desc=f"seed {self.seed}", unit="batch", disable=not self.progress, leave=False)

    # --- events ---

    @TrainerPlugin.hook
    def before_training_epoch(self, epoch: int, **_: Any) -> None:
        """Notes the time."""
        self.started, self.started_cpu = time.perf_counter(), time.process_time()
        self.losses: list[float] = []
        self.bar.set_description(f"seed {self.seed}, epoch {epoch}/{self.config.epochs}")

    @TrainerPlugin.hook
    def metric_recorded(self, record: Any) -> None:
        """Collects the losses of the batches."""
        if tuple(record.name) == ("train", "batch_loss"):
            self.losses.append(float(record.value))

    @TrainerPlugin.hook
    def before_training_optimizer_step(self, batch: list[Sentence], batch_no: int, epoch: int, **_: Any) -> None:
        """Stops before a gradient that is not finite reaches the weights."""
        gradients = [p.grad for p in self.tagger.parameters() if p.grad is not None]
        if gradients and not torch.isfinite(torch.stack([g.sum() for g in gradients]).sum()):
            raise FlairNasError(
                f"not finite in epoch {epoch}, batch {batch_no + 1} (seed {self.seed}): "
                f"{describe_fault(self.tagger, batch)} {self._what_is_kept()}"
            )

    @TrainerPlugin.hook
    def after_training_batch(self, batch: list[Sentence], **_: Any) -> None:
        """Has pooled vectors pooled anew in the next epoch, and moves the progress bar."""
        forget_changing_embeddings(self.tagger, batch)
        loss = f"{self.losses[-1]:.3f}" if self.losses else "-"
        dev = f"{self.best[0]:.2f}" if self.best[0] >= 0 else "-"
        self.bar.set_postfix_str(f"loss {loss}, best on dev {dev}", refresh=False)
        self.bar.update()

    @TrainerPlugin.hook
    def after_evaluation(self, epoch: int, **_: Any) -> None:
        """Evaluates on dev, keeps the best model, anneals, writes history and checkpoint."""
        trained, trained_cpu = time.perf_counter(), time.process_time()
        try:
            evaluation = evaluate_tagger(
                self.tagger, self.dev, batch_size=64, storage=self.config.embeddings_storage_mode, compare=False
            )
        except FlairNasError as error:
            raise FlairNasError(
                f"dev, after epoch {epoch} (seed {self.seed}): {error} {self._what_is_kept()}"
            ) from None
        line: dict[str, Any] = {
            "epoch": epoch,
            "train_loss": statistics.mean(self.losses) if self.losses else None,
            "dev_f1": evaluation.f1,
            "dev_loss": evaluation.loss,
            "learning_rate": self.trainer.optimizer.param_groups[0]["lr"],
            "seconds": trained - self.started,
            "cpu_seconds": trained_cpu - self.started_cpu,
            "evaluation_seconds": time.perf_counter() - trained,
        }
        self.run.history.append(line)
        self.epoch = epoch
        score = (evaluation.f1, -evaluation.loss)
        if score > self.best or self.config.train_with_dev:
            self.best, self.best_epoch = score, epoch
            card: dict[str, Any] = self.tagger.model_card or {}
            card.get("training_parameters", {}).pop("base_path", None)  # if it is published, it is nobody's business
            with whole_file(self.run.folder / "model.pt") as temporary:
                self.tagger.save(temporary)
        if self.config.train_with_dev:
            self.scheduler.step(line["train_loss"])
        else:
            self.scheduler.step(evaluation.f1, evaluation.loss or None)
        rate = self.trainer.optimizer.param_groups[0]["lr"]
        self.exhausted = rate < self.config.min_learning_rate
        self.save()
        text = f"seed {self.seed}, epoch {epoch} of {self.config.epochs}: loss {line['train_loss'] or 0:.4f}, "
        text += f"dev {evaluation.f1:.2f}, {line['seconds']:.1f} s"
        if self.progress:
            self.bar.write(text, file=sys.stderr)
        else:
            log.info("%s", text)
        if self.exhausted:
            raise TrainingInterrupt(f"learning rate {rate:g} is below {self.config.min_learning_rate:g}")

    @TrainerPlugin.hook
    def training_interrupt(self, **_: Any) -> None:
        """Tells Ctrl-C, which Flair swallows, from the end of annealing."""
        self.interrupted = not self.exhausted

    @TrainerPlugin.hook
    def _training_finally(self, **_: Any) -> None:
        self.bar.close()

    def _what_is_kept(self) -> str:
        return f"The checkpoint of epoch {self.epoch} is kept: {self.run.checkpoints.newest}"

    def get_state(self) -> dict[str, Any]:
        """Kept out of the model card: it says nothing about the model."""
        return {"__cls__": "flair_nas.tagging.epochs"}


def check_same_corpus(path: Path, sha256: str, corpus: TaggingCorpus) -> None:
    """Refuses a file of a run whose corpus has changed since.

    Raises:
        FlairNasError: it has.
    """
    if sha256 != corpus.sha256:
        raise FlairNasError(
            f"{path}: the corpus {corpus.name} has changed since this run began, so its figures would be of two "
            "corpora; choose another folder, or give back the files"
        )


def is_of_former_accuracy(state: Mapping[str, Any], corpus: TaggingCorpus) -> bool:
    """Return True if figures of a checkpoint or seed are accuracy that left out tokens of dev or test."""
    return not state.get("all_tokens", False) and has_unlabelled_tokens(corpus)


def _architecture(tagger: SequenceTagger) -> str:
    """What the recurrent layer is, weights aside: a genotype file may change between a stop and a resume."""
    if not isinstance(tagger.rnn, SearchedRNN):
        return str(tagger.rnn)
    return comparable(describe_rnn(tagger.rnn))
