"""Scores of a tagger's labels as probabilities.

Flair's own score of a span is the mean over its words of a softmax. With a CRF that softmax is over the best paths up
to each word, so it knows nothing of the words that follow.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from flair.data import Label, Sentence
from flair.models.sequence_tagger_model import SequenceTagger
from flair.models.sequence_tagger_utils.viterbi import ViterbiDecoder
from torch import Tensor

from flair_nas.runtime.decoding import CRF, Weights, decode_viterbi, find_labels, weigh_best, weigh_crf
from flair_nas.tagging.patches.viterbi_loss import FastCRF, get_emissions, use_fast_crf

Scored = list[tuple[str, float]]
"""A tag and its score for each word of a sentence."""


def use_probabilities(tagger: SequenceTagger) -> SequenceTagger:
    """Make the scores of a tagger's labels probabilities, and return the tagger. Labels stay as they are.

    The score of a span is the probability that its words have its tags: under a CRF by forward-backward, else the
    product over the words. In the usual format of tags, BIOES, that is the probability of the span. A tagger of words
    gives the probability of each tag. `load_tagger` calls this; call it after `SequenceTagger.load`.

    Args:
        tagger: the tagger, which is changed in place.

    Example:
        >>> from flair.embeddings import OneHotEmbeddings
        >>> from flair.models import SequenceTagger
        >>> from flair_nas import load_corpus, use_probabilities
        >>> corpus = load_corpus("demo").corpus
        >>> tags = corpus.make_label_dictionary("ner", add_unk=False)
        >>> tagger = use_probabilities(SequenceTagger(OneHotEmbeddings.from_corpus(corpus), tags, "ner"))
        >>> sentence = corpus.test[0]
        >>> tagger.predict(sentence, label_name="found")
        >>> all(0 <= label.score <= 1 for label in sentence.get_labels("found"))
        True
    """
    use_fast_crf(tagger)
    if not tagger.use_crf:
        tagger._standard_inference = partial(_infer, tagger)  # type: ignore[method-assign]
    elif type(tagger.viterbi_decoder) is ViterbiDecoder and isinstance(tagger.crf, FastCRF):
        tagger.viterbi_decoder = _Decoder(tagger)
    return tagger


class _Decoder(ViterbiDecoder):
    """Flair's decoder with probabilities as scores, and faster: by one step for all sentences and tags of a word."""

    def __init__(self, tagger: SequenceTagger) -> None:
        super().__init__(tagger.label_dictionary)
        self.names = tagger.label_dictionary.get_items()
        self.in_spans = tagger.predict_spans

    def decode(
        self,
        features_tuple: tuple[Tensor, Tensor, Tensor],
        probabilities_for_all_classes: bool,
        sentences: list[Sentence],
    ) -> tuple[list[Scored], list[list[list[Label]]]]:
        """Return Flair's tags with their probabilities, and Flair's scores of all tags if they are wanted."""
        features, lengths, transitions = features_tuple
        emissions, weights = (tensor.float().cpu().numpy() for tensor in (get_emissions(features), transitions))
        crf = CRF(weights, self.start_tag, self.stop_tag)
        numbers = decode_viterbi(emissions, lengths.numpy(), crf)
        path = weigh_crf(emissions, lengths.numpy(), crf, numbers)
        found = []
        for row, (own, length) in enumerate(zip(numbers.tolist(), lengths.tolist())):
            found.append(_score([self.names[number] for number in own[:length]], path, row, self.in_spans))
        of_all = super().decode(features_tuple, True, sentences)[1] if probabilities_for_all_classes else []
        return found, of_all


def _infer(tagger: SequenceTagger, features: Tensor, batch: list[Sentence], for_all: bool) -> Any:
    """Return what `SequenceTagger._standard_inference` does; the words of a span have the product of their scores."""
    found, of_all = type(tagger)._standard_inference(tagger, features, batch, for_all)
    if tagger.predict_spans:
        for row, scored in enumerate(found):
            path = weigh_best(np.array([[score for _, score in scored]]))
            found[row] = _score([tag for tag, _ in scored], path, 0, True)
    return found, of_all


def _score(tags: list[str], path: Weights, row: int, in_spans: bool) -> Scored:
    """Return tags with the probability of each, or in a span with that of the span, of which Flair takes the mean."""
    scores = [path.probability(row, place, place + 1) for place in range(len(tags))]
    for span in find_labels(tags, in_spans):
        scores[span.first : span.end] = [path.probability(row, span.first, span.end)] * (span.end - span.first)
    return [*zip(tags, scores)]
