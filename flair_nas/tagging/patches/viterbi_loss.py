"""Flair's CRF loss with the same value and gradients but for rounding, in a fraction of the time.

Flair has scores [B, T, tags, tags] of each tag after each other one, takes those of a time step from them, and sums
exponentials over the tag before, all of it [B, tags, tags] a step, with gradients as large. The same sum is a product
of [B, tags] and the exponentials of the transitions: the forward algorithm with scaling (Rabiner, 1989, section V.A).
"""

from __future__ import annotations

import functools
from operator import matmul
from typing import Any

import torch
from torch import Tensor

from flair_nas.runs.device import float32_products
from flair_nas.tagging.patches.once import once

_MADE_OF = "_flair_nas_made_of"
_FORBIDDEN = 1000.0  # by which a score of what cannot be is at least below others; Flair has -10,000
_SPREAD = 60.0  # of all others, so that a product of exponentials is no zero


def log_partition(emissions: Tensor, transitions: Tensor, lengths: Tensor, start: int, stop: int) -> Tensor:
    """The logarithm of the sum over all tags of all words of the exponential of their score, of all sentences together.

    Args:
        emissions: scores of each tag for each word, [B, T, tags].
        transitions: scores of a tag after another one, [tag, tag before], as `are_usual` has them.
        lengths: words of each sentence, [B], falling.
        start: the tag before the first word.
        stop: the tag after the last one.

    Returns:
        A number. No word has the tags `start` and `stop` in it, as they have none in fact; Flair counts paths in which
        one has, which matters where such a word scores thousands more than others.
    """
    # no word has these tags, however they score: else the best tag could be one from which no other can be reached
    of_no_word = torch.tensor([start, stop], device=emissions.device)
    emissions = emissions.index_fill(2, of_no_word, -torch.inf)
    most_likely = transitions.detach().max()
    weights = (transitions - most_likely).exp().T  # [tag before, tag]
    least = torch.finfo(emissions.dtype).tiny  # of what cannot be, so that its gradient is none, and not NaN
    words = torch.arange(int(lengths.max()), device=lengths.device)
    sizes: list[int] = (lengths > words.unsqueeze(1)).sum(1).tolist()  # T times how many sentences have that word
    first, *steps = emissions.unbind(1)
    product = matmul if float32_products(emissions.device) == "ieee" else _exact_product
    scores, ended = first + transitions[:, start], []  # [B, tags]
    taken = [emissions.new_zeros(())]  # out of scores, as large ones are coarse
    for size, step in zip(sizes[1:], steps):
        if size < len(scores):
            ended.append(scores[size:])
            scores = scores[:size]
        best = scores.detach().amax(1, keepdim=True)  # [size, 1]
        sums = product((scores - best).exp(), weights)  # [size, tags]
        scores = sums.clamp(min=least).log() + step[:size]
        taken.append(best.sum())
    found: Tensor = torch.cat([scores, *ended[::-1]]).add(transitions[stop]).logsumexp(1).sum()
    return found + torch.stack(taken).sum() + sum(sizes[1:]) * most_likely


def _exact_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Of matrices, where PyTorch's own has TF32 or bfloat16, which are too coarse."""
    return (rows.unsqueeze(2) * matrix).sum(1)


def are_usual(transitions: Tensor, start: int, stop: int) -> bool:
    """Whether nothing leads to the start or from the stop, and no other transition is as good as forbidden.

    Args:
        transitions: as of `log_partition`.
        start: likewise.
        stop: likewise.
    """
    scores = transitions.detach()
    is_forbidden = torch.zeros_like(scores, dtype=torch.bool)
    is_forbidden[start], is_forbidden[:, stop] = True, True
    most = scores.masked_fill(is_forbidden, -torch.inf).max()
    least = scores.masked_fill(is_forbidden, torch.inf).min()
    other = scores.masked_fill(~is_forbidden, -torch.inf).max()
    return bool((most - least < _SPREAD) & (other < most - _FORBIDDEN))


def path_score(emissions: Tensor, transitions: Tensor, lengths: Tensor, tags: Tensor, start: int, stop: int) -> Tensor:
    """The score of given tags, of all sentences together.

    Args:
        emissions: as of `log_partition`.
        transitions: likewise.
        lengths: likewise.
        tags: of all words in a row, [sum of lengths].
        start: as of `log_partition`.
        stop: likewise.
    """
    batch, longest, _ = emissions.shape
    place = torch.arange(longest + 1, device=emissions.device)
    sizes = lengths.to(emissions.device).unsqueeze(1)  # [B, 1]
    is_word = place < sizes  # [B, T + 1]
    path = torch.full((batch, longest + 1), stop, device=emissions.device)
    path = path.masked_scatter(is_word, tags.to(path.device, path.dtype))  # [B, T + 1], with `stop` after the last word
    before = torch.cat([torch.full_like(path[:, :1], start), path[:, :-1]], dim=1)
    of_words = emissions.gather(2, path[:, :-1].unsqueeze(2)).squeeze(2)  # [B, T]
    of_steps = transitions[path, before] * (place <= sizes)  # [B, T + 1]
    return of_words.masked_fill(~is_word[:, :-1], 0).sum() + of_steps.sum()  # what is in padding may be NaN


@once("CRF")
def register_crf(crf: Any) -> None:
    """Has scores of the `CRF` of `flair.models.sequence_tagger_utils.crf` tell what they are made of."""
    flair_forward = crf.forward

    @functools.wraps(flair_forward)
    def forward(self: Any, features: Tensor) -> Tensor:
        scores: Tensor = flair_forward(self, features)
        if not torch.is_inference_mode_enabled():  # in which nothing tells of changes
            setattr(scores, _MADE_OF, (features, self.transitions, _versions(scores, features, self.transitions)))
        return scores

    crf.forward = forward


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """They tell whether somebody changes one."""
    return tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)


@once("ViterbiLoss")
def register_viterbi_loss(loss: Any) -> None:
    """Has `ViterbiLoss` of `flair.models.sequence_tagger_utils.viterbi` take the faster way; once is enough."""
    flair_forward = loss.forward

    @functools.wraps(flair_forward)
    def forward(self: Any, features_tuple: tuple[Any, ...], targets: Tensor) -> Tensor:
        scores, lengths, transitions = features_tuple
        made_of: tuple[Tensor, Any, tuple[int, ...]] = getattr(scores, _MADE_OF, (scores, None, ()))
        features, of_crf, versions = made_of
        tags = self.start_tag, self.stop_tag
        is_own = of_crf is transitions and versions == _versions(scores, features, transitions)
        is_full = scores.dtype in (torch.float32, torch.float64)
        if not (is_own and is_full and bool((lengths.diff() <= 0).all()) and are_usual(transitions, *tags)):
            found: Tensor = flair_forward(self, features_tuple, targets)
            return found
        emissions = features.to(scores.dtype)
        with torch.autocast(scores.device.type, enabled=False):
            of_all_paths = log_partition(emissions, transitions, lengths, *tags)
            return of_all_paths - path_score(emissions, transitions, lengths, targets, *tags)

    loss.forward = forward
