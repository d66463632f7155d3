"""An objective that is no text, in one file as a further one would be: tags bits, and is judged by F1."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from flair_nas.runs.metric import Evaluation, Metric
from flair_nas.search.config import SearchConfig
from flair_nas.search.protocols import Batch, Objective
from flair_nas.search.supernets import build_supernet, seed_processes
from flair_nas.supernet import CellSupernet

STEPS = 7


class Bits(NamedTuple):
    """Sequences of bits [T, N], by part."""

    train: Tensor
    valid: Tensor


def read(config: SearchConfig, data: Any = None, progress: bool = False) -> Bits:
    """Made-up bits, or the given ones."""
    draw = torch.Generator().manual_seed(4)
    return data or Bits(*(torch.randint(2, (STEPS, count), generator=draw) for count in (40, 24)))


def build(config: SearchConfig, data: Bits, accelerator: Accelerator) -> Parity:
    """A tagger with the supernet that the settings describe."""
    supernet = build_supernet(config, accelerator)
    assert isinstance(supernet, CellSupernet)
    model = Tagger(supernet, config.hidden_size).to(accelerator.device)
    seed_processes(config, accelerator)
    return Parity(model, data, config.batch_size)


class Tagger(nn.Module):
    """A score of two tags for each bit."""

    def __init__(self, layer: CellSupernet, size: int) -> None:
        super().__init__()
        self.embedding, self.layer, self.output = nn.Embedding(2, size), layer, nn.Linear(size, 2)

    def forward(self, bits: Tensor) -> Tensor:
        """Scores [T, B, 2] of bits [T, B]."""
        return self.output(self.layer(self.embedding(bits))[0])


class Parity(Objective):
    """The tag of a bit is whether the one before was the same."""

    metric = Metric("f1", "F1", higher_is_better=True, form=".2f")

    def __init__(self, model: Tagger, bits: Bits, batch_size: int) -> None:
        self.model = self.module = model
        self.bits, self.batch_size, self.supernet = bits, batch_size, model.layer
        self.name = f"made-up bits, {bits.train.numel()} of them"
        self.fingerprint = hashlib.sha256(b"".join(part.numpy().tobytes() for part in bits)).hexdigest()

    def steps(self, epoch: int) -> int:
        return self.bits.train.shape[1] // self.batch_size

    def training_batch(self, epoch: int, step: int) -> Batch:
        return Batch([self.bits.train.split(self.batch_size, dim=1)[step]])

    def validation_batch(self, epoch: int, step: int) -> Batch:
        parts = self.bits.valid.split(self.batch_size, dim=1)
        return Batch([parts[step % (self.bits.valid.shape[1] // self.batch_size)]])

    def training_loss(self, part: Tensor, keep_state: bool = False) -> Tensor:
        return nn.functional.cross_entropy(self.model(part).flatten(0, 1), tags_of(part).flatten())

    validation_loss = training_loss

    def evaluate(self) -> Evaluation:
        training = self.model.training
        self.model.eval()
        with torch.no_grad(), self.supernet.batch_statistics():
            loss = float(self.training_loss(self.bits.valid))
            found, tags = self.model(self.bits.valid).argmax(-1), tags_of(self.bits.valid)
        self.model.train(training)
        both = int((found & tags).sum())
        return Evaluation(loss, 200 * both / max(1, int(found.sum() + tags.sum())))


def tags_of(bits: Tensor) -> Tensor:
    """The tags [T, B] of bits [T, B]."""
    before = torch.cat([torch.zeros_like(bits[:1]), bits[:-1]])
    return (bits == before).long()
