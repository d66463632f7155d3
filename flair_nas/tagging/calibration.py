"""Temperature scaling of taggers (Guo et al., ICML 2017), and how reliable their scores are.

All scores of a tagger are divided by one temperature: emissions and, with a CRF, transitions. The best path stays the
best, so labels do not change. The division is done once, in the weights, so exports and Flair itself have it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from scipy.optimize import minimize_scalar
from torch.nn.utils.rnn import pad_sequence

from flair_nas.errors import FlairNasError
from flair_nas.runtime.decoding import CRF, Floats, Numbers, Span, decode, find_labels
from flair_nas.storage.files import hash_data, whole_file, write_text
from flair_nas.tagging.evaluation import tags_of
from flair_nas.tagging.patches.viterbi_loss import FastCRF, get_emissions
from flair_nas.tagging.safe_file import holds_safe_tagger, write_safe

log = logging.getLogger("flair_nas")

FIGURES = "calibration.json"
"""File of figures beside a calibrated model."""
BINS = 15
"""Bins of labels by their score, equally full (Nguyen and O'Connor, EMNLP 2015)."""
_FORBIDDEN = -1000.0  # transitions below are Flair's -10,000, and stay
_LIMITS = 0.05, 20.0  # of the temperature
_DRAWS = 1000  # for the error by chance
_FEW = 50  # labels
_BATCH = 32  # sentences
_FOUND = "found"  # label type


class Reliability(NamedTuple):
    """The difference between scores and the share of labels that are right.

    Args:
        error: expected calibration error in points: over `BINS`, the mean of the difference of both.
        by_chance: mean error of as many labels that are right exactly as often as their scores say, in points.
        labels: number of labels found.
        bins: for each bin, the mean score and the share of right labels.
    """

    error: float
    by_chance: float
    labels: int
    bins: list[tuple[float, float]]


def measure_reliability(scores: Sequence[float], is_right: Sequence[bool]) -> Reliability:
    """Return how reliable scores of labels are.

    Raises:
        FlairNasError: there are no labels.

    Example:
        >>> from flair_nas.tagging.calibration import measure_reliability
        >>> round(measure_reliability([0.9] * 10, [True] * 7 + [False] * 3).error)
        20
    """
    if not len(scores):
        raise FlairNasError("the tagger finds nothing, so it has no scores to measure")
    chances, right = np.asarray(scores, np.float64), np.asarray(is_right, np.float64)
    parts = np.array_split(chances.argsort(kind="stable"), min(BINS, len(chances)))

    def error(outcomes: Floats) -> float:
        return 100 * sum(abs(float((chances[part] - outcomes[part]).sum())) for part in parts) / len(chances)

    draw = np.random.default_rng(0)
    by_chance = float(np.mean([error((draw.random(len(chances)) < chances) * 1.0) for _ in range(_DRAWS)]))
    bins = [(float(chances[part].mean()), float(right[part].mean())) for part in parts]
    return Reliability(error(right), by_chance, len(chances), bins)


def list_outcomes(sentences: Sequence[Sentence], predicted: str, gold: str) -> tuple[list[float], list[bool]]:
    """Return the scores of the labels found, and whether each is right.

    Args:
        sentences: sentences with both labels.
        predicted: label type of the labels that the tagger gave.
        gold: label type of the gold labels.
    """
    scores, right = list[float](), list[bool]()
    for sentence in sentences:
        wanted = {(label.value, label.data_point.unlabeled_identifier) for label in sentence.get_labels(gold)}
        for label in sentence.get_labels(predicted):
            scores.append(label.score)
            right.append((label.value, label.data_point.unlabeled_identifier) in wanted)
    return scores, right


def fit_temperature(tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str) -> float:
    """Return the temperature at which the scores of a tagger's labels are the likeliest for what is right.

    Right and wrong labels have the targets of Platt (1999), which are a little below 1 and above 0.

    Args:
        tagger: a trained tagger that `load_tagger` returned.
        sentences: labelled sentences that it was not trained on.
        label_type: the gold label.

    Raises:
        FlairNasError: the tagger finds nothing in the sentences, or has a CRF of its own.
    """
    if tagger.use_crf and not isinstance(tagger.crf, FastCRF):
        raise FlairNasError(f"a tagger with a {type(tagger.crf).__name__} cannot be calibrated; Flair's CRF can")
    in_spans = tagger.predict_spans
    names = tagger.label_dictionary.get_items()
    batches = []
    for some, emissions, lengths in emissions_of(tagger, sentences):
        gold = [{*find_labels(tags_of(sentence, label_type), in_spans)} for sentence in some]
        batches.append((emissions, lengths, gold))

    def decoded(temperature: float) -> Iterator[tuple[Span, bool]]:
        crf = crf_of(tagger, temperature)
        for emissions, lengths, gold in batches:
            for own, spans in zip(gold, decode(emissions / temperature, lengths, crf, names, in_spans)):
                yield from ((span, span._replace(score=1.0) in own) for span in spans)

    is_right = np.array([right for _, right in decoded(1.0)])
    count, good = len(is_right), int(is_right.sum())
    # if all were right, or all wrong, the likeliest scores would be 1 or 0
    targets = np.where(is_right, (good + 1) / (good + 2), 1 / (count - good + 2))

    def loss(logarithm: float) -> float:
        scores = np.clip([span.score for span, _ in decoded(float(np.exp(logarithm)))], 1e-12, 1 - 1e-12)
        return float(-(targets * np.log(scores) + (1 - targets) * np.log1p(-scores)).mean())

    if not count:
        raise FlairNasError("the tagger finds nothing in dev, so there are no scores to calibrate; train it longer")
    if count < _FEW:
        log.warning("dev has %d labels that the tagger finds: a temperature fitted on so few is mostly chance", count)
    return float(np.exp(minimize_scalar(loss, bounds=np.log(_LIMITS), method="bounded").x))


def emissions_of(
    tagger: SequenceTagger, sentences: Sequence[Sentence]
) -> Iterator[tuple[list[Sentence], Floats, Numbers]]:
    """Yield batches of sentences with their emissions [B, T, tags] and lengths [B]."""
    tagger.eval()
    Sentence.set_context_for_sentences([*sentences])
    ordered = sorted(sentences, key=len, reverse=True)
    for some in (ordered[at : at + _BATCH] for at in range(0, len(ordered), _BATCH)):
        with torch.no_grad():
            vectors, lengths = tagger._prepare_tensors(some)
            features: Any = tagger.forward(vectors, lengths)
        if tagger.use_crf:
            features = get_emissions(features[0])
        else:  # the words of all sentences in a row
            features = pad_sequence(features.split(lengths.tolist()), batch_first=True)
        yield some, features.double().cpu().numpy(), lengths.numpy()
        for sentence in some:
            sentence.clear_embeddings()


def crf_of(tagger: SequenceTagger, temperature: float) -> CRF | None:
    """Return the CRF of a tagger, whose scores are divided by a temperature, or None."""
    if not tagger.use_crf:
        return None
    decoder, transitions = tagger.viterbi_decoder, tagger.crf.transitions.detach()
    return CRF(_divide(transitions, temperature).double().cpu().numpy(), decoder.start_tag, decoder.stop_tag)


def _divide(transitions: torch.Tensor, temperature: float) -> torch.Tensor:
    """Divide all transitions but the forbidden ones."""
    return torch.where(transitions < _FORBIDDEN, transitions, transitions / temperature)


@torch.no_grad()
def divide_scores(tagger: SequenceTagger, temperature: float) -> None:
    """Divide all scores of a tagger by a temperature, in place. Its labels stay as they are."""
    for weights in tagger.linear.parameters():
        weights.div_(temperature)
    if tagger.use_crf:
        tagger.crf.transitions.copy_(_divide(tagger.crf.transitions, temperature))


def calibrate_tagger(
    tagger: SequenceTagger, dev: Sequence[Sentence], sentences: Sequence[Sentence], label_type: str
) -> dict[str, Any]:
    """Divide a tagger's scores by the temperature that fits dev, in place.

    Args:
        tagger: a trained tagger that `load_tagger` returned.
        dev: labelled sentences that choose the temperature.
        sentences: other labelled sentences, which tell how reliable the scores are before and after.
        label_type: the gold label.

    Returns:
        JSON data: the ``temperature``, and the `Reliability` ``before`` and ``after``.

    Raises:
        FlairNasError: the tagger finds nothing in either, or has a CRF that is not Flair's.
    """

    def measure() -> dict[str, Any]:
        tagger.predict([*sentences], label_name=_FOUND)
        return measure_reliability(*list_outcomes(sentences, _FOUND, label_type))._asdict()

    temperature, before = fit_temperature(tagger, dev, label_type), measure()
    divide_scores(tagger, temperature)
    return {"temperature": temperature, "before": before, "after": measure()}


def describe_calibration(figures: dict[str, Any]) -> str:
    """Return the figures of `calibrate_tagger` in a sentence."""
    before, after = figures["before"], figures["after"]
    return (
        f"temperature {figures['temperature']:.2f}, fitted on dev; expected calibration error of {after['labels']:,} "
        f"labels: {before['error']:.1f} points before, {after['error']:.1f} after ({after['by_chance']:.1f} by chance "
        "alone, if scores were exact)"
    )


def save_calibrated(tagger: SequenceTagger, model: Path, figures: dict[str, Any]) -> None:
    """Write a tagger over the file or folder that it was loaded from, in each form that is there; its figures beside.

    Raises:
        OSError: a file cannot be written, or the disk is full.
    """
    file = model / "model.pt" if model.is_dir() else model
    if file.exists():
        with whole_file(file) as temporary:
            tagger.save(temporary)
    if file.name == "model.pt" and holds_safe_tagger(file.parent):
        write_safe(tagger, file.parent)
    write_text(file.with_name(FIGURES), json.dumps(figures | {"sha256": hash_data(figures)}, indent=2) + "\n")
