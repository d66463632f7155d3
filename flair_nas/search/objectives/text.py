"""Language modelling on a text as the objective of a search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.language_model.model import LanguageModel, LayerState
from flair_nas.language_model.perplexity import StreamScore, evaluate_stream
from flair_nas.language_model.text.corpus import Ids, TextCorpus, batchify, load_text
from flair_nas.language_model.text.segments import SHORTEST, segment_lengths
from flair_nas.runs.metric import PERPLEXITY, Evaluation, Guess
from flair_nas.search.config import SearchConfig
from flair_nas.search.protocols import Batch, Data, Objective
from flair_nas.search.supernets import build_supernet, seed_processes
from flair_nas.supernet import CellSupernet, InterCellSupernet
from flair_nas.supernet.orders import OrderSupernet


def read(config: SearchConfig, data: Data = None, progress: bool = False) -> TextCorpus:
    """Read the text that the settings name, or the one passed, as token ids."""
    return load_text(config.text if data is None else data, config, progress=progress)


def build(config: SearchConfig, data: TextCorpus, accelerator: Accelerator) -> TextObjective:
    """Build the language model with the supernet that the settings describe, on its device; seeds the generators."""
    supernet, types = build_supernet(config, accelerator), len(data.vocabulary)
    if config.adaptive_cutoffs and config.adaptive_cutoffs[-1] >= types - 1:
        raise FlairNasError(
            f"adaptive_cutoffs must be below {types - 1:,}, the vocabulary having {types:,} types; got "
            f"{config.adaptive_cutoffs}"
        )
    try:
        model = LanguageModel(
            types,
            config.hidden_size,
            config.hidden_size,
            supernet,
            dropout=config.dropout,
            embedding_dropout=config.embedding_dropout,
            adaptive_cutoffs=config.adaptive_cutoffs,
            init_range=config.embedding_init_range,
        ).to(accelerator.device)
    except ValueError as error:
        raise FlairNasError(f"cannot build a model of {types:,} types: {error}") from None
    seed_processes(config, accelerator)
    objective = TextObjective(model, data, config, accelerator)
    derived = []
    if objective.bptt != config.bptt:
        derived.append(
            f"segments have {objective.bptt} tokens: an epoch has {objective.steps(1)} steps "
            f"(--min-steps 0 keeps {config.bptt})"
        )
    if config.frequency_bias and not config.adaptive_cutoffs:
        with torch.no_grad():
            model.decoder.bias.copy_(torch.as_tensor(_log_frequencies(data)))
        unigram = PERPLEXITY.shown(PERPLEXITY.from_cost(objective.guess().cost))
        derived.append(f"the softmax starts at the frequencies of {types:,} types ({unigram} on the valid part)")
    objective.derived = "; ".join(derived)
    return objective


def _log_frequencies(text: TextCorpus) -> NDArray[np.float64]:
    """Return the logarithm of each word's frequency in the training part, [V]. Each word counts at least once."""
    counts = np.maximum(text.vocabulary.counts, 1)
    frequencies: NDArray[np.float64] = np.log(counts / counts.sum())
    return frequencies


class Segment(NamedTuple):
    """Segment of some columns of a text."""

    tokens: Tensor  # ids, [T, B]
    targets: Tensor  # the ids that follow, [T, B]
    stream: tuple[str, int]  # ``train`` or ``valid``, and the part's number: the key of its carried state
    first: bool  # True at the start of the stream, where there is no state


class TextObjective(Objective):
    """Language modelling on a text: model weights learn on its training part, architecture weights on its valid part.

    Raises:
        FlairNasError: too little text.
    """

    metric = PERPLEXITY

    def __init__(self, model: LanguageModel, text: TextCorpus, config: SearchConfig, accelerator: Accelerator) -> None:
        self.model = self.module = model
        self.text, self.config, self.accelerator = text, config, accelerator
        assert isinstance(model.layer, (CellSupernet, InterCellSupernet, OrderSupernet))
        self.supernet = cast(Any, model.layer)
        unknown = text.unknown_shares["valid"]
        self.name = f"{text.name}, {len(text.train):,} training tokens"
        self.name += f", {100 * unknown:.1f} % of valid <unk>" if unknown else ""
        self.fingerprint = text.fingerprint  # of text and vocabulary
        self.bptt = config.bptt
        if config.min_steps:  # an epoch has at least as many, if need be with shorter segments
            self.bptt = min(self.bptt, max(SHORTEST, len(text.train) // config.batch_size // config.min_steps))
        share = config.batch_size // accelerator.num_processes
        first = accelerator.process_index * share
        self.streams: dict[str, Sequence[Tensor]] = {}
        for part in ("train", "valid"):
            columns: Tensor = batchify(getattr(text, part), config.batch_size, text.labels[part])  # [T, batch_size]
            columns = columns[:, first : first + share]  # [T, share]
            self.streams[part] = columns.chunk(config.parts, dim=1)  # [T, share / parts] each
        self.states: dict[tuple[str, int], LayerState] = {}
        self._lengths: tuple[int, list[int]] = (0, [])

    # --- data ---

    def steps(self, epoch: int) -> int:
        """Return the number of segments of an epoch."""
        return len(self._segment_lengths(epoch))

    def _segment_lengths(self, epoch: int) -> list[int]:
        """Return the lengths of an epoch's segments; they depend on seed and epoch alone, also in a resumed run."""
        if self._lengths[0] != epoch:
            generator = np.random.default_rng((self.config.seed, epoch))
            draw = (generator.random, generator.normal) if self.config.vary_length else None
            self._lengths = (epoch, segment_lengths(len(self.streams["train"][0]) - 1, self.bptt, draw))
        return self._lengths[1]

    def training_batch(self, epoch: int, step: int) -> Batch:
        """Return the segments of a step."""
        lengths = self._segment_lengths(epoch)
        return self._cut("train", sum(lengths[:step]), lengths[step])

    def validation_batch(self, epoch: int, step: int) -> Batch:
        """Return the segments of a step, in a cycle that begins anew each epoch; the last segment may be short."""
        rows = len(self.streams["valid"][0]) - 1
        start = step % -(-rows // self.bptt) * self.bptt
        return self._cut("valid", start, min(self.bptt, rows - start))

    def _cut(self, part: str, start: int, length: int) -> Batch:
        device, segments = self.model.embedding.weight.device, list[Segment]()
        for number, stream in enumerate(self.streams[part]):
            rows = stream[start : start + length + 1].to(device)  # [length + 1, B]
            segments.append(Segment(rows[:-1], rows[1:], (part, number), start == 0))
        return Batch(segments, length / self.bptt if self.config.vary_length else 1.0)

    # --- losses ---

    def training_loss(self, part: Segment, keep_state: bool = False) -> Tensor:
        """Compute the cross-entropy in nats per token, and the slowness penalty."""
        return self._loss(part, keep_state, self.config.slowness)

    def validation_loss(self, part: Segment, keep_state: bool = False) -> Tensor:
        """Compute the cross-entropy in nats per token."""
        return self._loss(part, keep_state, 0.0)

    def _loss(self, part: Segment, keep_state: bool, slowness: float) -> Tensor:
        state = None if part.first else self.states.get(part.stream)
        with self.accelerator.autocast():
            result = self.model.loss(part.tokens, part.targets, state, slowness=slowness)
        if keep_state:
            self.states[part.stream] = result.state
        return result.total

    def evaluate(self) -> Evaluation:
        """Compute mean nats per token and perplexity of the valid part, in the columns of the search."""
        score = self._evaluate(self.text.valid)
        return Evaluation(score.loss, score.perplexity)

    def _evaluate(self, ids: Ids) -> StreamScore:
        with self.accelerator.autocast(), self.supernet.batch_statistics():
            return evaluate_stream(self.model, ids, batch_size=self.config.batch_size, bptt=self.bptt)

    def evaluation_seconds(self) -> float:
        """Measure two segments of the valid part, and extrapolate to the whole part."""
        start = self.text.valid[: 2 * self.bptt * self.config.batch_size + 1]
        began = time.perf_counter()
        self._evaluate(start)
        return (time.perf_counter() - began) * len(self.text.valid) / len(start)

    def guess(self, part: str = "valid") -> Guess:
        """Return the loss of a part under the training part's frequencies of words or characters."""
        loss = -float(_log_frequencies(self.text)[getattr(self.text, part)].mean())
        return Guess("unigram", f"{'word' if self.config.unit == 'word' else 'character'} frequencies alone", loss)

    def restart(self) -> None:
        """Forget carried states."""
        self.states.clear()
