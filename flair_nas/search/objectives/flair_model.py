"""Objective of a search with a Flair model, of tags or of whole texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate import Accelerator
from flair.data import Sentence
from torch import Tensor, nn

from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import F1, Evaluation, Guess, Metric
from flair_nas.search.flair_config import FlairSearchConfig
from flair_nas.search.protocols import Batch, Objective
from flair_nas.search.supernets import build_supernet, seed_processes
from flair_nas.supernet import BothDirections
from flair_nas.supernet.orders import OrderSupernet
from flair_nas.tagging.data.corpora import TaggingCorpus, check_labelled, sentences_of
from flair_nas.tagging.data.frozen_embeddings import changing_names, frozen_members, keep_frozen, members_of

if TYPE_CHECKING:
    from flair.embeddings import DocumentRNNEmbeddings
    from flair.models import SequenceTagger, TextClassifier


_POOL = 50  # batches whose sentences are sorted by length before they are parted


class Learned(nn.Module):
    """Modules of a model that a search trains: all but frozen embeddings. See `FlairObjective` for `holder`."""

    def __init__(self, model: nn.Module, holder: SequenceTagger | DocumentRNNEmbeddings) -> None:
        super().__init__()
        embeddings: Any = holder.embeddings
        frozen = {id(member) for member in frozen_members(embeddings)}
        self.embeddings = nn.ModuleList(member for member in members_of(embeddings) if id(member) not in frozen)
        for prefix, part in {"": model, "words_": holder}.items() if holder is not model else [("", model)]:
            for name, child in part.named_children():
                if name != "embeddings":
                    self.add_module(prefix + name, child)
        self._model = [model]  # in a list, it is no submodule

    def train(self, mode: bool = True) -> Learned:
        """Set the mode of the model, too."""
        self._model[0].train(mode)
        return super().train(mode)


class FlairObjective(Objective):
    """Flair model: its weights learn on one part of train, architecture weights on the other, or on dev.

    Batches have sentences of similar length. Their order depends on seed and epoch alone. A `layer` of both directions
    of the supernet takes the place of the LSTM in `holder`. This is the module with `rnn` and the `embeddings` of
    words: the model itself, or its embeddings of documents.

    Raises:
        FlairNasError: too few sentences, or batches that parts and processes do not divide.
    """

    model: Any  # Flair's types of its attributes are too wide
    holder: Any

    def __init__(
        self,
        model: SequenceTagger | TextClassifier,
        holder: SequenceTagger | DocumentRNNEmbeddings,
        corpus: TaggingCorpus,
        metric: Metric,
        config: FlairSearchConfig,
        accelerator: Accelerator,
        layer: type[BothDirections] = BothDirections,
    ) -> None:
        several = True if accelerator.num_processes > 1 else None  # they share one file
        keep_frozen(holder.embeddings, corpus, on_disk=config.storage == "disk" if config.storage else several)
        self.model, self.holder = model, holder
        one = build_supernet(config, accelerator, holder.rnn.input_size, both_directions=True)
        supernet: Any = one if isinstance(one, OrderSupernet) else layer(one, config.directions == "shared")
        self.supernet = supernet.to(accelerator.device)
        holder.rnn = self.supernet
        seed_processes(config, accelerator)
        self.corpus, self.metric, self.accelerator = corpus, metric, accelerator
        self.batch_size, self.parts, self.seed = config.batch_size, config.parts, config.seed
        train, self.dev = sentences_of(corpus.corpus.train), sentences_of(corpus.corpus.dev)
        order = np.random.default_rng(self.seed).permutation(len(train))
        usual = 0.0 if config.own.trained_alone else 0.5
        count = round((usual if config.held_out is None else config.held_out) * len(train))
        self.streams = {
            "valid": [train[number] for number in order[:count]] if count else self.select_learnable(self.dev),
            "train": [train[number] for number in order[count:]],
        }
        for part, sentences in self.streams.items():
            if len(sentences) < self.batch_size:
                raise FlairNasError(
                    f"{corpus.name}: {len(sentences)} sentences for the "
                    f"{'model' if part == 'train' else 'architecture'} weights are less than a batch of "
                    f"{self.batch_size}; choose a smaller batch_size or another held_out"
                )
        self._check_size(self.dev, "dev")
        documents = [] if holder is model else [str(holder.name)]  # they keep the graph that made them
        self.module, self.changing = Learned(model, holder), [*changing_names(holder.embeddings), *documents]
        self.name = f"{corpus.name}, {len(self.streams['train']):,} training sentences"
        self.fingerprint = corpus.fingerprint
        self._batches: dict[str, tuple[int, list[list[Sentence]]]] = {}

    def _check_size(self, sentences: list[Sentence], part: str) -> None:
        if len(sentences) < 2:
            raise FlairNasError(
                f"{self.corpus.name}: {part} needs at least 2 sentences, as states are normalised over a batch"
            )

    # --- data ---

    def select_learnable(self, sentences: list[Sentence]) -> list[Sentence]:
        """Return the sentences of dev that have a loss, for the architecture weights."""
        return sentences

    def steps(self, epoch: int) -> int:
        """Return the number of batches of an epoch; sentences that fill no batch are left out, others each time."""
        return len(self.streams["train"]) // self.batch_size

    def training_batch(self, epoch: int, step: int) -> Batch:
        """Return the sentences of a step."""
        return self._cut("train", epoch, step)

    def validation_batch(self, epoch: int, step: int) -> Batch:
        """Return the sentences of a step, in a cycle that begins anew each epoch."""
        return self._cut("valid", epoch, step)

    def _cut(self, part: str, epoch: int, step: int) -> Batch:
        if self._batches.get(part, (0,))[0] != epoch:
            self._batches[part] = epoch, self._draw_batches(part, epoch)
        batches = self._batches[part][1]
        sentences = batches[step % len(batches)][self.accelerator.process_index :: self.accelerator.num_processes]
        return Batch([sentences[number :: self.parts] for number in range(self.parts)])

    def _draw_batches(self, part: str, epoch: int) -> list[list[Sentence]]:
        """Draw the sentences of an epoch, sort each pool by length, cut it into batches, and draw their order."""
        sentences, size = self.streams[part], self.batch_size
        draw = np.random.default_rng((self.seed, epoch, part == "train"))
        drawn = [sentences[number] for number in draw.permutation(len(sentences))[: len(sentences) // size * size]]
        pools = [drawn[start : start + _POOL * size] for start in range(0, len(drawn), _POOL * size)]
        ordered = [sentence for pool in pools for sentence in sorted(pool, key=len)]
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        return [batches[number] for number in draw.permutation(len(batches))]

    # --- losses ---

    def training_loss(self, part: list[Sentence], keep_state: bool = False) -> Tensor:
        """Compute the sum over the whole batch, as Flair does, to fit its learning rate and clipping."""
        total, _ = self._loss(part)
        return total * self.parts * int(self.accelerator.num_processes)  # the mean is taken over both

    def validation_loss(self, part: list[Sentence], keep_state: bool = False) -> Tensor:
        """Compute the loss per token, or text."""
        total, count = self._loss(part)
        return total / count

    def _loss(self, batch: list[Sentence]) -> tuple[Tensor, int]:
        with self.accelerator.autocast():
            total, count = self.model.forward_loss(batch)
        self._forget(batch)
        return total, count

    def _forget(self, sentences: list[Sentence]) -> None:
        """Clear the vectors of embeddings that learn."""
        if self.changing:
            for sentence in sentences:
                sentence.clear_embeddings(self.changing)

    def evaluate(self) -> Evaluation:
        """Compute loss and metric on dev; the statistics of each batch normalise its states, as in training."""
        mode = self.module.training
        self.module.eval()
        size = max(2, self.batch_size // self.accelerator.num_processes)
        while len(self.dev) % size == 1:  # a batch of one has no statistics
            size += 1
        try:
            with self.accelerator.autocast(), self.supernet.batch_statistics():
                return self.evaluate_batches(size)
        finally:
            self.module.train(mode)

    def use_test(self) -> None:
        """Evaluate on test from now on, in place of dev."""
        check_labelled(self.corpus, "test")
        self.dev = sentences_of(self.corpus.corpus.test)
        self._check_size(self.dev, "test")

    def evaluate_batches(self, size: int) -> Evaluation:
        """Compute loss and metric on dev in batches of `size`, in the mode that is set."""
        raise NotImplementedError

    def guess(self, part: str = "valid") -> Guess:
        """Return the accuracy on dev of the most frequent label of train, or the F1 of an empty prediction."""
        if self.metric is F1:
            return Guess("empty", "finding nothing", 0.0)
        counts = Counter(label for sentence in self.streams["train"] for label in self.labels(sentence))
        ((majority, _),) = counts.most_common(1)
        labels = [label for sentence in self.dev for label in self.labels(sentence)]
        return Guess("majority", f"the label {majority} alone", -100 * labels.count(majority) / len(labels))

    def labels(self, sentence: Sentence) -> list[str]:
        """Return the labels of a sentence that accuracy counts."""
        raise NotImplementedError
