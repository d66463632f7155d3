"""The loss of a tagger on sentences whose tags are probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from flair_nas.errors import FlairNasError
from flair_nas.tagging.distillation.targets import Taught
from flair_nas.tagging.distillation.teachers import Targets, name_tags
from flair_nas.tagging.patches.viterbi_loss import get_emissions, log_partition


def use_soft_loss(tagger: SequenceTagger, taught: Taught, weight: float) -> None:
    """Let a tagger learn from sentences that teachers have labelled, with a weight, beside those with gold labels.

    The loss of a sentence is the cross entropy of its tags. With a CRF it is that of tag sequences, whose tags are
    drawn word by word from the targets. With gold labels it is Flair's.

    Args:
        tagger: a tagger that `build_tagger` returned, which is changed in place.
        taught: the sentences.
        weight: weight of their loss.

    Raises:
        FlairNasError: they have tags that the tagger has not.
    """
    numbers = {name: number for number, name in enumerate(name_tags(tagger))}
    if unknown := sorted({*taught.names} - numbers.keys()):
        raise FlairNasError(f"the labelled sentences have tags that the corpus has not: {', '.join(unknown)}")
    places = np.array([numbers[name] for name in taught.names])
    targets = {
        id(sentence): Targets(places[own.tags.astype(np.intp)], own.chances) for sentence, own in taught.sentences
    }

    def forward_loss(sentences: list[Sentence]) -> tuple[Tensor, int]:
        return compute_loss(tagger, sentences, targets, weight)

    tagger.forward_loss = forward_loss  # type: ignore[method-assign]


def compute_loss(
    tagger: SequenceTagger, sentences: Sequence[Sentence], targets: Mapping[int, Targets], weight: float
) -> tuple[Tensor, int]:
    """Return the loss of sentences, summed, and the number of their words.

    Args:
        tagger: the tagger.
        sentences: sentences with gold labels or targets.
        targets: targets by the `id` of their sentence.
        weight: weight of the loss of sentences with targets.
    """
    ordered = sorted(sentences, key=len, reverse=True)
    lengths = torch.tensor([len(sentence) for sentence in ordered])
    is_taught = torch.tensor([id(sentence) in targets for sentence in ordered])
    width = len(tagger.label_dictionary)
    tags = []
    for sentence in ordered:
        own = targets.get(id(sentence))
        tags.append(_to_dense(tagger._prepare_label_tensor([sentence]).cpu() if own is None else own, width))
    features = tagger.forward(*tagger._prepare_tensors(ordered))
    words = int(lengths.sum())
    if not tagger.use_crf:
        weights = torch.where(is_taught, weight, 1.0).repeat_interleave(lengths).unsqueeze(1)
        scores = features.log_softmax(1)
        return -((weights * torch.cat(tags)).to(scores) * scores).sum(), words
    emissions, transitions = get_emissions(features[0]), features[2]
    ends = tagger.viterbi_decoder.start_tag, tagger.viterbi_decoder.stop_tag
    padded, loss = pad_sequence(tags, batch_first=True).to(emissions), emissions.new_zeros(())
    for rows, scale in ((~is_taught, 1.0), (is_taught, weight)):
        if rows.any():
            longest = int(lengths[rows].max())
            some, wanted = emissions[rows, :longest], padded[rows, :longest]
            partition = log_partition(some, transitions, lengths[rows], *ends)
            loss = loss + scale * (partition - mean_score(some, transitions, lengths[rows], wanted, *ends))
    return loss, words


def mean_score(
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
    words = (emissions.masked_fill(targets == 0, 0) * targets).sum()  # padding may hold NaN
    ends = (targets[:, 0] @ transitions[:, start]).sum() + (targets[rows, lengths - 1] @ transitions[stop]).sum()
    steps = (targets[:, 1:] @ transitions) * targets[:, :-1]
    return words + ends + steps.sum()


def _to_dense(tags: Tensor | Targets, width: int) -> Tensor:
    """Return the probabilities of all tags, [T, tags], from gold tags or from targets."""
    if isinstance(tags, Tensor):
        return torch.zeros(len(tags), width).scatter_(1, tags.unsqueeze(1), 1.0)
    numbers, chances = torch.from_numpy(tags.tags.astype(np.int64)), torch.from_numpy(tags.chances)
    return torch.zeros(len(numbers), width).scatter_(1, numbers, chances)
