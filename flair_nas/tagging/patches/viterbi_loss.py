"""Flair's CRF loss with the same value and gradients up to rounding, in a fraction of the time.

Flair scores each pair of successive tags, [B, T, tags, tags]. At each time step it sums exponentials over the previous
tag, and its gradients are as large as all scores. The same sum is a product of [B, tags] and the exponentials of the
transitions: the forward algorithm with scaling (Rabiner, 1989, section V.A).
"""

from __future__ import annotations

from operator import matmul

import torch
from flair.models.sequence_tagger_model import SequenceTagger
from flair.models.sequence_tagger_utils.crf import CRF
from flair.models.sequence_tagger_utils.viterbi import ViterbiLoss
from torch import Tensor

from flair_nas.runs.device import float32_products

_EMISSIONS = "_flair_nas_emissions"
_FORBIDDEN = 1000.0  # a forbidden transition scores at least this much less than all others; Flair's is -10,000
_MAX_SPREAD = 60.0  # of the other transitions: within it, no product of exponentials underflows


def use_fast_crf(tagger: SequenceTagger) -> SequenceTagger:
    """Make a tagger's CRF loss fast, and return the tagger.

    The loss is Flair's up to rounding. Its work grows with the length of sentences, that of Flair's with the square.
    Taggers that flair-nas trains have it already, and so have taggers with a searched layer given by `rnn_type`. Call
    it before training for another layer, or for a layer passed as `rnn`. A tagger without a CRF stays as it is.

    Args:
        tagger: the tagger, which is changed in place.

    Example:
        >>> from flair.embeddings import OneHotEmbeddings
        >>> from flair.models import SequenceTagger
        >>> from flair_nas import load_corpus, use_fast_crf
        >>> corpus = load_corpus("demo").corpus
        >>> tags = corpus.make_label_dictionary("ner")
        >>> tagger = use_fast_crf(SequenceTagger(OneHotEmbeddings.from_corpus(corpus), tags, "ner", rnn_type="LSTM"))
        >>> tagger.use_crf
        True
    """
    if tagger.use_crf and type(tagger.crf) is CRF and type(tagger.loss_function) is ViterbiLoss:
        # a new CRF would draw random weights
        tagger.crf.__class__, tagger.loss_function.__class__ = FastCRF, FastViterbiLoss
    return tagger


class FastCRF(CRF):
    """Flair's CRF. Its scores also hold their emissions."""

    def forward(self, features: Tensor) -> Tensor:
        """Return Flair's scores [B, T, tag, previous tag] of emissions [B, T, tags]."""
        scores: Tensor = super().forward(features)
        setattr(scores, _EMISSIONS, features)
        return scores


def get_emissions(scores: Tensor) -> Tensor:
    """Return the emissions [B, T, tags] of scores of `FastCRF`."""
    emissions: Tensor = getattr(scores, _EMISSIONS)
    return emissions


class FastViterbiLoss(ViterbiLoss):
    """Flair's CRF loss, computed by one product of matrices per time step."""

    def forward(self, features_tuple: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
        """Return the negative log-likelihood of the gold tags, summed over sentences.

        Flair's own code computes it in unusual cases: other forbidden transitions than Flair's, scores in half
        precision or not from `FastCRF`, or sentences that are not sorted by length.

        Args:
            features_tuple: scores of `FastCRF` [B, T, tag, previous tag], lengths [B] and transitions [tags, tags].
            targets: gold tags of all words in a row, [sum of lengths].
        """
        scores, lengths, transitions = features_tuple
        tags = self.start_tag, self.stop_tag
        emissions: Tensor | None = getattr(scores, _EMISSIONS, None)
        is_full = scores.dtype in (torch.float32, torch.float64)
        is_sorted = bool((lengths.diff() <= 0).all())
        if emissions is None or not (is_full and is_sorted and are_usual(transitions, *tags)):
            loss: Tensor = super().forward(features_tuple, targets)
            return loss
        emissions = emissions.to(scores.dtype)
        with torch.autocast(scores.device.type, enabled=False):
            partition = log_partition(emissions, transitions, lengths, *tags)
            return partition - path_score(emissions, transitions, lengths, targets, *tags)


def log_partition(emissions: Tensor, transitions: Tensor, lengths: Tensor, start: int, stop: int) -> Tensor:
    """Return the log of the sum of exp(score) over all tag sequences, summed over sentences.

    No word takes the tags `start` and `stop`. Flair also counts such sequences, but their scores are negligible.
    Lengths [B] are in falling order, and `are_usual` holds for the transitions.
    """
    # else the best tag could be one from which no other can be reached
    no_word = torch.tensor([start, stop], device=emissions.device)
    emissions = emissions.index_fill(2, no_word, -torch.inf)
    best_transition = transitions.detach().max()
    weights = (transitions - best_transition).exp().T  # [previous tag, tag]
    tiny = torch.finfo(emissions.dtype).tiny  # where the sum is 0: a gradient of 0 in place of NaN
    words = torch.arange(int(lengths.max()), device=lengths.device)
    sizes: list[int] = (lengths > words.unsqueeze(1)).sum(1).tolist()  # T numbers of sentences that have the word
    first, *steps = emissions.unbind(1)
    product = matmul if float32_products(emissions.device) == "ieee" else _exact_product
    scores, ended = first + transitions[:, start], []  # [B, tags]
    scales = [emissions.new_zeros(())]  # taken out of the scores, whose resolution falls as they grow
    for size, step in zip(sizes[1:], steps):
        if size < len(scores):
            ended.append(scores[size:])
            scores = scores[:size]
        best = scores.detach().amax(1, keepdim=True)  # [size, 1]
        sums = product((scores - best).exp(), weights)  # [size, tags]
        scores = sums.clamp(min=tiny).log() + step[:size]
        scales.append(best.sum())
    total: Tensor = torch.cat([scores, *ended[::-1]]).add(transitions[stop]).logsumexp(1).sum()
    return total + torch.stack(scales).sum() + sum(sizes[1:]) * best_transition


def _exact_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return the product [B, tags] without TF32 and bfloat16, which are too coarse."""
    return (rows.unsqueeze(2) * matrix).sum(1)


def are_usual(transitions: Tensor, start: int, stop: int) -> bool:
    """Return True if only transitions [tag, previous tag] to `start` and from `stop` are forbidden."""
    scores = transitions.detach()
    is_forbidden = torch.zeros_like(scores, dtype=torch.bool)
    is_forbidden[start], is_forbidden[:, stop] = True, True
    high = scores.masked_fill(is_forbidden, -torch.inf).max()
    low = scores.masked_fill(is_forbidden, torch.inf).min()
    forbidden = scores.masked_fill(~is_forbidden, -torch.inf).max()
    return bool((high - low < _MAX_SPREAD) & (forbidden < high - _FORBIDDEN))


def path_score(emissions: Tensor, transitions: Tensor, lengths: Tensor, tags: Tensor, start: int, stop: int) -> Tensor:
    """Return the sum of the scores of one tag sequence per sentence. `tags` holds those of all words in a row."""
    batch, longest, _ = emissions.shape
    place = torch.arange(longest + 1, device=emissions.device)
    sizes = lengths.to(emissions.device).unsqueeze(1)  # [B, 1]
    is_word = place < sizes  # [B, T + 1]
    path = torch.full((batch, longest + 1), stop, device=emissions.device)
    path = path.masked_scatter(is_word, tags.to(path.device, path.dtype))  # [B, T + 1], with `stop` after the last word
    previous = torch.cat([torch.full_like(path[:, :1], start), path[:, :-1]], dim=1)
    word_scores = emissions.gather(2, path[:, :-1].unsqueeze(2)).squeeze(2)  # [B, T]
    step_scores = transitions[path, previous] * (place <= sizes)  # [B, T + 1]
    return word_scores.masked_fill(~is_word[:, :-1], 0).sum() + step_scores.sum()  # padding may hold NaN
