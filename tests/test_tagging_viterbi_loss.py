"""Flair's CRF loss, taken apart by time steps: the same to the last bit, and linear in the length of sentences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flair.data import Dictionary
from flair.models.sequence_tagger_utils.viterbi import ViterbiLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import flair_nas  # noqa: F401  # what is tested is done by importing it

flair_forward = ViterbiLoss.forward.__wrapped__  # type: ignore[attr-defined]


def loss_of(tags: int) -> ViterbiLoss:
    dictionary = Dictionary(add_unk=False)
    for number in range(tags):
        dictionary.add_item(f"tag {number}")
    dictionary.set_start_stop_tags()
    return ViterbiLoss(dictionary)


def batch_of(lengths: list[int], tags: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Emissions [B, T, tags], lengths [B], transitions, and the gold tags of all words in a row."""
    draw = torch.Generator().manual_seed(seed)
    emissions = torch.randn(len(lengths), max(lengths), tags + 2, generator=draw)
    transitions = torch.randn(tags + 2, tags + 2, generator=draw)
    gold = torch.randint(tags, (sum(lengths),), generator=draw)
    return emissions, torch.tensor(lengths), transitions, gold


def differentiated(forward: Any, lengths: list[int], tags: int, seed: int = 0) -> list[Tensor]:
    """The loss, and its gradients with respect to emissions and transitions."""
    emissions, sizes, transitions, gold = batch_of(lengths, tags, seed)
    learned = [emissions.requires_grad_(), transitions.requires_grad_()]
    scores = emissions.unsqueeze(-1) + transitions  # [B, T, tags, tags]
    loss = forward(loss_of(tags), (scores, sizes, transitions), gold)
    return [loss.detach(), *torch.autograd.grad(loss, learned)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 99))
def test_value_and_gradients_are_those_of_flair(lengths: list[int], tags: int, seed: int) -> None:
    lengths = sorted(lengths, reverse=True)  # as Flair sorts its batches
    expected, found = (differentiated(forward, lengths, tags, seed) for forward in (flair_forward, ViterbiLoss.forward))
    for ours, flairs in zip(found, expected):
        torch.testing.assert_close(ours, flairs, rtol=0, atol=0)


def test_the_loss_is_minus_the_log_of_the_share_of_the_gold_path() -> None:
    tags, words = 3, 4
    emissions, lengths, transitions, gold = batch_of([words], tags)
    start, stop = tags, tags + 1
    paths = torch.cartesian_prod(*[torch.arange(tags + 2)] * words)  # [paths, words]
    before = torch.cat([torch.full((len(paths), 1), start), paths[:, :-1]], dim=1)
    of_path = emissions[0].gather(1, paths.T).sum(0) + transitions[paths, before].sum(1)  # [paths]
    of_path = of_path + transitions[stop, paths[:, -1]]
    of_gold = of_path[(paths == gold).all(1)]
    found, *_ = differentiated(ViterbiLoss.forward, [words], tags)
    assert found.item() == pytest.approx((of_path.logsumexp(0) - of_gold).item(), rel=1e-5)


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

    assert growth(ViterbiLoss.forward) < 4.2
    assert growth(flair_forward) > 8  # so the square would be seen here


def test_once_is_enough() -> None:
    from flair.models.sequence_tagger_utils import viterbi

    from flair_nas.tagging.viterbi_loss import register_viterbi_loss

    before = viterbi.ViterbiLoss.forward
    register_viterbi_loss(viterbi)
    assert viterbi.ViterbiLoss.forward is before
