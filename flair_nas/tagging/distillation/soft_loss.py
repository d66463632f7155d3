"""The loss of a tagger on sentences whose tags are probabilities."""

from __future__ import annotations

from types import MethodType

import numpy as np
import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from flair_nas.tagging.distillation.teachers import Targets
from flair_nas.tagging.patches.viterbi_loss import get_emissions, log_partition

ATTRIBUTE = "flair_nas_targets"
"""Attribute of sentences that teachers have labelled."""


def expected_score(
    emissions: Tensor, transitions: Tensor, lengths: Tensor, targets: Tensor, start: int, stop: int
) -> Tensor:
    """Return the mean score of tag sequences whose tags are drawn word by word, summed over sentences.

    Args:
        emissions: [B, T, tags].
        transitions: scores of a tag after another one, [tag, previous tag].
        lengths: words of each sentence, [B].
        targets: probabilities of tags, [B, T, tags]; 0 behind the last word.
        start: the tag before the first word.
        stop: the tag after the last word.
    """
    rows = torch.arange(len(lengths), device=targets.device)
    total = (emissions * targets).sum() + (targets[:, 0] @ transitions[:, start]).sum()
    total = total + (targets[rows, lengths - 1] @ transitions[stop]).sum()
    after = targets[:, 1:] @ transitions  # [B, T - 1, previous tag]
    return total + (after * targets[:, :-1]).sum()


def dense(tagger: SequenceTagger, sentences: list[Sentence], gold: list[int]) -> list[Tensor]:
    """Return the targets of sentences, [T, tags] each; `gold` are the gold tags of all words in a row."""
    width, place, found = len(tagger.label_dictionary), 0, []
    for sentence in sentences:
        targets: Targets | None = getattr(sentence, ATTRIBUTE, None)
        own = np.zeros((len(sentence), width), np.float32)
        if targets is None:
            own[np.arange(len(sentence)), gold[place : place + len(sentence)]] = 1.0
        else:
            np.put_along_axis(own, targets.tags.astype(np.intp), targets.chances, 1)
        place += len(sentence)
        found.append(torch.from_numpy(own))
    return found


def use_soft_loss(tagger: SequenceTagger, weight: float) -> SequenceTagger:
    """Let a tagger learn from sentences that teachers have labelled, with a weight, beside those with gold labels.

    With a CRF, the loss of a sentence is the cross entropy of its tag sequences, whose tags are drawn word by word from
    the targets. With gold labels it is Flair's.
    """

    def forward_loss(self: SequenceTagger, sentences: list[Sentence]) -> tuple[Tensor, int]:
        taught = [hasattr(sentence, ATTRIBUTE) for sentence in sentences]
        if not any(taught):
            return SequenceTagger.forward_loss(self, sentences)
        ordered = sorted(sentences, key=len, reverse=True)
        gold = self._prepare_label_tensor(ordered).tolist()
        features = self.forward(*self._prepare_tensors(ordered))
        lengths = torch.tensor([len(sentence) for sentence in ordered])
        targets = pad_sequence(dense(self, ordered, gold), batch_first=True)
        is_taught = torch.tensor([hasattr(sentence, ATTRIBUTE) for sentence in ordered])
        if not self.use_crf:
            scores = features.log_softmax(1)
            weights = torch.where(is_taught, weight, 1.0).repeat_interleave(lengths)
            flat = torch.cat([one[:length] for one, length in zip(targets, lengths.tolist())])
            return -(weights[:, None] * flat * scores).sum(), int(lengths.sum())
        emissions, transitions = get_emissions(features[0]), features[2]
        ends = self.viterbi_decoder.start_tag, self.viterbi_decoder.stop_tag
        total = emissions.new_zeros(())
        for rows, scale in ((~is_taught, 1.0), (is_taught, weight)):
            if rows.any():
                longest = int(lengths[rows].max())
                some, own = emissions[rows, :longest], targets[rows, :longest]
                partition = log_partition(some, transitions, lengths[rows], *ends)
                some = some.masked_fill(own == 0, 0)
                total = total + scale * (partition - expected_score(some, transitions, lengths[rows], own, *ends))
        return total, int(lengths.sum())

    tagger.forward_loss = MethodType(forward_loss, tagger)  # type: ignore[method-assign]
    return tagger
