"""Flair's CRF loss by products of matrices: the same but for rounding, and linear in the length of sentences."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flair.data import Dictionary
from flair.embeddings import HashEmbeddings
from flair.models import SequenceTagger
from flair.models.sequence_tagger_utils.viterbi import ViterbiLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.patches import viterbi_loss
from flair_nas.tagging.patches.viterbi_loss import FastCRF, FastViterbiLoss, log_partition, use_fast_crf
from flair_nas.tagging.training import build_tagger

flair_forward = ViterbiLoss.forward
BOTH = FastViterbiLoss.forward, flair_forward


def tags_of(number: int) -> Dictionary:
    """Return so many tags."""
    dictionary = Dictionary(add_unk=False)
    for tag in range(number):
        dictionary.add_item(f"tag {tag}")
    return dictionary


def parts_of(tags: int, dtype: torch.dtype) -> tuple[FastCRF, FastViterbiLoss]:
    """Return the CRF and its loss for so many tags, and for start and stop."""
    dictionary = tags_of(tags)
    dictionary.set_start_stop_tags()
    return FastCRF(dictionary, tags + 2, False).to(dtype), FastViterbiLoss(dictionary)


def batch_of(lengths: list[int], tags: int, seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Emissions [B, T, tags], lengths [B], and the gold tags of all words in a row."""
    draw = torch.Generator().manual_seed(seed)
    emissions = scale * torch.randn(len(lengths), max(lengths), tags + 2, generator=draw, dtype=torch.float64)
    return emissions, torch.tensor(lengths), torch.randint(tags, (sum(lengths),), generator=draw)


def differentiated(
    forward: Any,
    lengths: list[int],
    tags: int,
    seed: int = 0,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    change: Callable[[Tensor], Tensor] = lambda scores: scores,
    forbid: bool = False,
    padding: float | None = None,
) -> list[Tensor]:
    """The loss, and its gradients with respect to emissions and transitions."""
    torch.manual_seed(seed)
    crf, loss = parts_of(tags, dtype)
    if forbid:  # as who wants no I- after O
        crf.transitions.detach()[0, 1] = -10000
    emissions, sizes, gold = batch_of(lengths, tags, seed, scale)
    if padding is not None:
        emissions[torch.arange(max(lengths)) >= sizes.unsqueeze(1)] = padding
    emissions = emissions.to(dtype).requires_grad_()
    found = forward(loss, (change(crf(emissions)), sizes, crf.transitions), gold)
    return [found.detach(), *torch.autograd.grad(found, [emissions, crf.transitions])]


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda found: sorted(found, reverse=True)
)  # as Flair's


@pytest.mark.slow
@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 6), st.integers(0, 99), st.sampled_from([0.01, 1.0, 30.0]))
def test_value_and_gradients_are_those_of_flair(lengths: list[int], tags: int, seed: int, scale: float) -> None:
    found, expected = (differentiated(forward, lengths, tags, seed, scale) for forward in BOTH)
    for ours, flairs in zip(found, expected):
        torch.testing.assert_close(ours, flairs, rtol=1e-10, atol=1e-10 * scale)
    in_single = differentiated(FastViterbiLoss.forward, lengths, tags, seed, scale, torch.float32)
    for ours, flairs in zip(in_single, expected):
        torch.testing.assert_close(ours.double(), flairs, rtol=1e-4, atol=1e-4 * max(1.0, scale))


def test_scores_that_somebody_has_changed_count_as_they_are() -> None:
    found, expected = (differentiated(forward, [5, 3], 4, change=lambda scores: scores + 1.0) for forward in BOTH)
    assert all(torch.equal(ours, flairs) for ours, flairs in zip(found, expected))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_where_a_transition_is_forbidden_it_is_flairs_own(scale: float) -> None:
    found, expected = (differentiated(forward, [5, 3], 4, scale=scale, forbid=True) for forward in BOTH)
    assert all(torch.equal(ours, flairs) for ours, flairs in zip(found, expected))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_in_padding_is_no_matter(value: float) -> None:
    found, expected = (
        differentiated(forward, [5, 3, 1], 4, padding=padding)
        for forward, padding in ((FastViterbiLoss.forward, value), (flair_forward, 0.0))
    )
    for ours, flairs in zip(found, expected):
        torch.testing.assert_close(ours, flairs, rtol=1e-10, atol=1e-10)


def test_gradients_have_gradients() -> None:
    crf, loss = parts_of(3, torch.float64)
    emissions, sizes, gold = batch_of([4, 2], 3)

    def value(emissions: Tensor) -> Tensor:
        found: Tensor = loss((crf(emissions), sizes, crf.transitions), gold)
        return found

    assert torch.autograd.gradgradcheck(value, (emissions.requires_grad_(),))


def test_mixed_precision_leaves_the_loss_as_it_is() -> None:
    crf, loss = parts_of(5, torch.float32)
    emissions, sizes, gold = batch_of([9, 4, 4], 5)
    words = emissions.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss((crf(words), sizes, crf.transitions), gold)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(loss((crf(words.float()), sizes, crf.transitions), gold).item(), rel=1e-6)


def test_long_sentences_are_as_exact_as_flairs_own() -> None:
    exact = differentiated(flair_forward, [300, 200], 10)
    errors = {
        name: [
            float((of.double() - right).norm() / right.norm())
            for of, right in zip(differentiated(forward, [300, 200], 10, dtype=torch.float32), exact)
        ]
        for name, forward in {"ours": FastViterbiLoss.forward, "flair": flair_forward}.items()
    }
    assert all(ours <= flairs + 1e-6 for ours, flairs in zip(errors["ours"], errors["flair"]))


@contextlib.contextmanager
def coarse_products(setting: str) -> Iterator[None]:
    """As set by PyTorch's older function, or by its newer setting, after which the older one's getter raises."""
    if setting == "older":
        torch.set_float32_matmul_precision("medium")
    elif hasattr(torch.backends, "fp32_precision"):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    else:
        pytest.skip("this PyTorch has the older setting alone")
    try:
        yield
    finally:
        if setting == "newer":
            torch.backends.mkldnn.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("setting", ["older", "newer"])
def test_coarse_products_are_not_for_the_loss(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = differentiated(FastViterbiLoss.forward, [9, 4], 4)
    monkeypatch.setattr(Tensor, "__matmul__", lambda *_: pytest.fail("a product was asked for"))
    with coarse_products(setting):
        found = differentiated(FastViterbiLoss.forward, [9, 4], 4)
    assert all(torch.allclose(ours, right, rtol=1e-12) for ours, right in zip(found, exact))


def test_unsorted_sentences_are_left_to_flair() -> None:
    crf, loss = parts_of(4, torch.float64)
    emissions, sizes, gold = batch_of([6, 3], 4)
    with pytest.raises(RuntimeError, match="enforce_sorted"):  # of pack_padded_sequence
        loss((crf(emissions), sizes.flip(0), crf.transitions), gold)


def test_inference_mode() -> None:
    corpus = load_corpus("demo")
    tagger = build_tagger(TaggerConfig(rnn="lstm", embeddings=["one-hot"], hidden_size=8), corpus)
    sentences = list(corpus.corpus.train)[:4]
    tagger.eval()
    expected, _ = tagger.forward_loss(sentences)
    with torch.inference_mode():
        found, _ = tagger.forward_loss(sentences)
        tagger.predict(sentences)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("rnn", ["lstm", "darts-v1"])
def test_what_flair_nas_trains_learns_by_it(rnn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(viterbi_loss, "log_partition", lambda *given: called.append(1) or log_partition(*given))
    corpus = load_corpus("demo")
    tagger = build_tagger(TaggerConfig(rnn=rnn, embeddings=["one-hot"], hidden_size=8), corpus)
    loss, _ = tagger.forward_loss(list(corpus.corpus.train)[:4])
    loss.backward()
    assert called and tagger.crf.transitions.grad.abs().sum() > 0


def test_a_searched_layer_has_it_and_flairs_own_on_demand(tmp_path: Path) -> None:
    def tagger_of(rnn_type: str, **options: Any) -> SequenceTagger:
        return SequenceTagger(HashEmbeddings(10, 4), tags_of(3), "ner", rnn_type=rnn_type, hidden_size=4, **options)

    searched, lstm = tagger_of("darts-v1"), tagger_of("LSTM")
    searched.save(tmp_path / "model.pt")
    for tagger in (searched, SequenceTagger.load(tmp_path / "model.pt"), copy.deepcopy(searched)):
        assert (type(tagger.crf), type(tagger.loss_function)) == (FastCRF, FastViterbiLoss)
    assert type(lstm.loss_function) is ViterbiLoss
    random = torch.get_rng_state()
    assert use_fast_crf(use_fast_crf(lstm)) is lstm and type(lstm.loss_function) is FastViterbiLoss
    assert torch.equal(torch.get_rng_state(), random)
    assert type(use_fast_crf(tagger_of("LSTM", use_crf=False)).loss_function) is torch.nn.CrossEntropyLoss


def test_the_loss_is_minus_the_log_of_the_share_of_the_gold_path() -> None:
    tags, words = 3, 4
    torch.manual_seed(0)
    crf, loss = parts_of(tags, torch.float64)
    emissions, lengths, gold = batch_of([words], tags)
    start, stop, transitions = tags, tags + 1, crf.transitions
    paths = torch.cartesian_prod(*[torch.arange(tags + 2)] * words)  # [paths, words]
    before = torch.cat([torch.full((len(paths), 1), start), paths[:, :-1]], dim=1)
    of_path = emissions[0].gather(1, paths.T).sum(0) + transitions[paths, before].sum(1)  # [paths]
    of_path = of_path + transitions[stop, paths[:, -1]]
    of_gold = of_path[(paths == gold).all(1)]
    found = loss((crf(emissions), lengths, transitions), gold)
    assert found.item() == pytest.approx((of_path.logsumexp(0) - of_gold).item(), rel=1e-12)


class _Written(TorchDispatchMode):
    """Counts the numbers that operations write."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        self.numbers += found.numel() if isinstance(found, Tensor) and not operation.is_view else 0
        return found


def test_work_grows_with_length_and_not_with_its_square() -> None:
    def growth(forward: Any) -> float:
        """By how much more is written for four times the length."""
        written = []
        for length in (20, 80):
            with _Written() as count:
                differentiated(forward, [length] * 4, tags=10)
            written.append(count.numbers)
        return written[1] / written[0]

    assert growth(FastViterbiLoss.forward) < 4.2
    assert growth(flair_forward) > 8  # so the square would be seen here
