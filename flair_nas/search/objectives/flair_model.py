"""A Flair model as the objective of a search: what those of tags and of whole sentences share."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate import Accelerator
from flair.data import Sentence
from torch import Tensor, nn

from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import Evaluation, Guess, Measure
from flair_nas.search.build import build_supernet, seed_processes
from flair_nas.search.flair_config import FlairSearchConfig
from flair_nas.search.protocols import Objective
from flair_nas.supernet import BothDirections
from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of
from flair_nas.tagging.data.frozen_embeddings import changing_names, frozen_members, keep_frozen

if TYPE_CHECKING:
    from typing_extensions import Self

F1 = Measure("f1", "F1", higher_is_better=True, form=".2f")
ACCURACY = Measure("accuracy", "accuracy", higher_is_better=True, form=".2f")  # where each token or text has one label

_POOL = 50  # batches whose sentences are sorted by length before they are parted


class Learned(nn.Module):
    """What of a model a search trains: all but the embeddings that do not learn, which may be large.

    Args:
        model: whose modules these are.
        holder: the module in it whose `embeddings` are those of words: itself, or its embeddings of documents.
    """

    def __init__(self, model: nn.Module, holder: Any) -> None:
        super().__init__()
        frozen = {id(member) for member in frozen_members(holder.embeddings)}
        members = getattr(holder.embeddings, "embeddings", [holder.embeddings])
        self.embeddings = nn.ModuleList(member for member in members if id(member) not in frozen)
        for prefix, part in {"": model, "words_": holder}.items() if holder is not model else [("", model)]:
            for name, child in part.named_children():
                if name != "embeddings":
                    self.add_module(prefix + name, child)
        self._model = [model]  # in a list, it is no submodule: its own are this one's

    def train(self, mode: bool = True) -> Learned:
        """Sets the mode of the model, too."""
        self._model[0].train(mode)
        return super().train(mode)


class FlairObjective(Objective):
    """A Flair model: its weights learn on one part of train, architecture weights on the other, or on dev.

    Batches are of sentences of like length, in an order that depends on seed and epoch alone.

    Args:
        model: its loss is descended.
        holder: the module in it whose `rnn` is a supernet in both directions, and `embeddings` are those of words.
        corpus: of its labels; its dev part is what it is evaluated on.
        measure: what it is judged by.
        batch_size: sentences in a batch, over all processes and parts.
        held_out: share of train for the architecture weights; 0: they learn on dev.
        parts: pieces that a batch is computed in, one after the other, to save memory.
        seed: of the shares and the batches.
        rank: number of this process; it takes its share of each batch.
        processes: how many there are.
        autocast: gives a context for mixed precision.

    Raises:
        FlairNasError: too few sentences, or batches that parts and processes do not divide.
    """

    data = "corpus"

    def __init__(
        self,
        model: Any,
        holder: Any,
        corpus: TaggingCorpus,
        *,
        measure: Measure,
        batch_size: int,
        held_out: float,
        parts: int = 1,
        seed: int = 0,
        rank: int = 0,
        processes: int = 1,
        autocast: Any = nullcontext,
    ) -> None:
        if batch_size % (parts * processes):
            raise FlairNasError(
                f"batch_size {batch_size} cannot be divided among {processes} processes with {parts} parts each"
            )
        self.model, self.holder, self.corpus, self.autocast = model, holder, corpus, autocast
        self.batch_size, self.parts, self.seed = batch_size, parts, seed
        self.rank, self.processes = rank, processes
        train, self.dev = sentences_of(corpus.corpus.train), sentences_of(corpus.corpus.dev)
        self.measure = measure
        order = np.random.default_rng(seed).permutation(len(train))
        count = round(held_out * len(train))
        self.streams = {
            "valid": [train[number] for number in order[:count]] if count else self.learnable(self.dev),
            "train": [train[number] for number in order[count:]],
        }
        for part, sentences in self.streams.items():
            if len(sentences) < batch_size:
                raise FlairNasError(
                    f"{corpus.name}: {len(sentences)} sentences for the "
                    f"{'model' if part == 'train' else 'architecture'} weights are less than a batch of {batch_size}; "
                    "choose a smaller batch_size or another held_out"
                )
        if len(self.dev) < 2:
            raise FlairNasError(f"{corpus.name}: dev needs at least 2 sentences, as states are normalised over a batch")
        of_texts = [] if holder is model else [holder.name]  # which hold on to all that made them
        self.learned, self.changing = Learned(model, holder), [*changing_names(holder.embeddings), *of_texts]
        self._batches: dict[str, tuple[int, list[list[Sentence]]]] = {}

    @classmethod
    def of(
        cls,
        config: FlairSearchConfig,
        data: TaggingCorpus,
        accelerator: Accelerator,
        model: Any,
        holder: Any,
        measure: Measure,
        layer: type[BothDirections] = BothDirections,
    ) -> Self:
        """The objective of a model with an LSTM, in whose place the supernet of the settings is put.

        Args:
            config: the settings.
            data: the corpus.
            accelerator: whose device is used.
            model: as for the class.
            holder: as for the class; its `rnn` is replaced.
            measure: as for the class.
            layer: what the supernet is made in both directions by.
        """
        several = True if accelerator.num_processes > 1 else None  # they share one file
        keep_frozen(holder.embeddings, data, on_disk=config.storage == "disk" if config.storage else several)
        supernet = build_supernet(config, accelerator, holder.rnn.input_size)
        holder.rnn = layer(supernet, config.directions == "shared").to(accelerator.device)
        seed_processes(config, accelerator)
        return cls(
            model,
            holder,
            data,
            measure=measure,
            batch_size=config.batch_size,
            held_out=config.held_out,
            parts=config.parts,
            seed=config.seed,
            rank=accelerator.process_index,
            processes=accelerator.num_processes,
            autocast=accelerator.autocast,
        )

    @property
    def name(self) -> str:
        """The corpus' name and size."""
        return f"{self.corpus.name}, {len(self.streams['train']):,} training sentences"

    @property
    def fingerprint(self) -> str:
        """Of words and labels."""
        return self.corpus.sha256

    @property
    def module(self) -> nn.Module:
        """What of the model is learned."""
        return self.learned

    @property
    def supernet(self) -> BothDirections:
        """Its layer."""
        layer: Any = self.holder.rnn
        assert isinstance(layer, BothDirections)
        return layer

    # --- data ---

    def learnable(self, sentences: list[Sentence]) -> list[Sentence]:
        """Those of dev that have a loss, for the architecture weights."""
        return sentences

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch; sentences that do not fill one are left out, others each time."""
        return len(self.streams["train"]) // self.batch_size

    def training_batch(self, epoch: int, step: int) -> list[list[Sentence]]:
        """The parts of a step; `step` counts from 0."""
        return self._cut("train", epoch, step)

    def validation_batch(self, epoch: int, step: int) -> list[list[Sentence]]:
        """The parts of a step, in a cycle that begins anew each epoch."""
        return self._cut("valid", epoch, step)

    def _cut(self, part: str, epoch: int, step: int) -> list[list[Sentence]]:
        if self._batches.get(part, (0,))[0] != epoch:
            self._batches[part] = epoch, self._drawn(part, epoch)
        batches = self._batches[part][1]
        sentences = batches[step % len(batches)][self.rank :: self.processes]
        return [sentences[number :: self.parts] for number in range(self.parts)]

    def _drawn(self, part: str, epoch: int) -> list[list[Sentence]]:
        """The batches of an epoch: drawn, sorted by length a pool at a time, parted, and drawn again."""
        sentences, size = self.streams[part], self.batch_size
        draw = np.random.default_rng((self.seed, epoch, part == "train"))
        drawn = [sentences[number] for number in draw.permutation(len(sentences))[: len(sentences) // size * size]]
        pools = [drawn[start : start + _POOL * size] for start in range(0, len(drawn), _POOL * size)]
        ordered = [sentence for pool in pools for sentence in sorted(pool, key=len)]
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        return [batches[number] for number in draw.permutation(len(batches))]

    # --- losses ---

    def model_parameters(self) -> list[nn.Parameter]:
        """All that is learned but for the architecture weights."""
        return [parameter for parameter in super().model_parameters() if parameter.requires_grad]

    def training_loss(self, batch: list[Sentence], keep_state: bool = False) -> Tensor:
        """The loss of the whole batch, as Flair descends it, with its learning rate and clipping."""
        total, _ = self._loss(batch)
        return total * self.parts * self.processes  # of which the mean is taken

    def validation_loss(self, batch: list[Sentence], keep_state: bool = False) -> Tensor:
        """The loss per token, or sentence."""
        total, count = self._loss(batch)
        return total / count

    def _loss(self, batch: list[Sentence]) -> tuple[Tensor, int]:
        with self.autocast():
            total, count = self.model.forward_loss(batch)
        self._forget(batch)
        return total, count

    def _forget(self, sentences: list[Sentence]) -> None:
        """What is learned is embedded anew in each step."""
        if self.changing:
            for sentence in sentences:
                sentence.clear_embeddings(self.changing)

    def evaluate(self, progress: bool = False) -> Evaluation:
        """Loss and measure on dev; states are normalised by the statistics of each batch, as in training."""
        mode = self.learned.training
        self.learned.eval()
        size = max(2, self.batch_size // self.processes)
        while len(self.dev) % size == 1:  # a batch of one has no statistics
            size += 1
        try:
            with self.autocast(), self.supernet.batch_statistics():
                return self.evaluated(size)
        finally:
            self.learned.train(mode)

    def evaluated(self, size: int) -> Evaluation:
        """Loss and measure on dev in batches of that size, in the mode that is set."""
        raise NotImplementedError

    def guess(self, part: str = "valid") -> Guess:
        """Return the accuracy on dev of the most frequent label of train; in F1, that of finding nothing."""
        if self.measure is F1:
            return Guess("empty", "finding nothing", 0.0)
        most = Counter(label for sentence in self.streams["train"] for label in self.labels(sentence)).most_common(1)
        labels = [label for sentence in self.dev for label in self.labels(sentence)]
        return Guess("majority", f"the label {most[0][0]} alone", -100 * labels.count(most[0][0]) / len(labels))

    def labels(self, sentence: Sentence) -> list[str]:
        """Return the labels of a sentence of which the accuracy is a share."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Nothing: no state is carried from batch to batch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to put back."""
