"""SRU, minGRU and minLSTM against the reference in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference import State, assert_same, gradients, run_layers, run_sru
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from flair_nas import ParallelRNN

pytestmark = pytest.mark.usefixtures("kernels")  # all of it on every engine

LENGTHS = (4, 2, 5)
SIZES = pytest.mark.parametrize("input_size, hidden_size", [(3, 4), (4, 4)])  # with a product for the skip, and without


def made(
    input_size: int, hidden_size: int, kind: str = "sru", **options: Any
) -> tuple[ParallelRNN, list[Tensor], Tensor]:
    """Return a layer in float64, sequences and a state."""
    torch.manual_seed(1)
    layer = ParallelRNN(input_size, hidden_size, kind, dtype=torch.float64, **options)
    with torch.no_grad():
        for cell in layer.cells:
            cell.bias.uniform_(-0.5, 0.5)
    sequences = [torch.randn(length, input_size, dtype=torch.float64).requires_grad_() for length in LENGTHS]
    shape = (layer.num_layers * layer.num_directions, len(LENGTHS), hidden_size)
    return layer, sequences, torch.randn(shape, dtype=torch.float64).requires_grad_()


def run(layer: ParallelRNN, sequences: list[Tensor], state: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    output, final = layer(pack_sequence(sequences, enforce_sorted=False), state)
    padded, lengths = pad_packed_sequence(output)
    return [padded[:length, b] for b, length in enumerate(lengths.tolist())], final


@SIZES
@pytest.mark.parametrize("kind", ["sru", "mingru", "minlstm"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["", "all directions"])
def test_results_and_gradients_equal_the_reference(
    input_size: int, hidden_size: int, kind: str, options: dict[str, Any]
) -> None:
    layer, sequences, state = made(input_size, hidden_size, kind, **options)
    leaves = [*sequences, state, *layer.parameters()]
    starts = [[State(h, [], []) for h in state[:, b]] for b in range(len(LENGTHS))]
    outputs, finals = run_layers(layer, sequences, starts)
    last = torch.stack([torch.stack([end.hidden for end in ends]) for ends in finals], dim=1)
    results, final = run(layer, sequences, state)
    assert_same([*results, final], [*outputs, last])
    assert_same(gradients([*results, final], leaves), gradients([*outputs, last], leaves))


@SIZES
def test_variational_dropout_masks_the_input_and_the_state_where_it_is_multiplied(
    input_size: int, hidden_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, sequences, state = made(input_size, hidden_size, input_dropout=0.5, recurrent_dropout=0.5)
    drawn: list[Tensor] = []
    bernoulli = Tensor.bernoulli_

    def keep(self: Tensor, p: float) -> Tensor:
        drawn.append(bernoulli(self, p))
        return self

    monkeypatch.setattr(Tensor, "bernoulli_", keep)
    results, _ = run(layer, sequences, state)
    x_masks, c_masks = drawn  # they are of longest sequences first, and divided by 1 - p in place
    order = sorted(range(len(LENGTHS)), key=lambda b: -LENGTHS[b])
    weights = dict(layer.cells[0].named_parameters())
    expected = [
        run_sru(weights, sequences[b], state[0, b], x_masks[order.index(b)], c_masks[order.index(b)])[0]
        for b in range(len(LENGTHS))
    ]
    assert_same(results, expected)
    leaves = [*sequences, state, *layer.parameters()]
    assert_same(gradients(results, leaves), gradients(expected, leaves))


def test_a_sequence_cut_anywhere_continues_as_if_it_had_not_been() -> None:
    layer, _, _ = made(3, 4, num_layers=2)
    data = torch.randn(7, 2, 3, dtype=torch.float64)
    whole, final = layer(data)
    for cut in range(1, 7):
        first, state = layer(data[:cut])
        second, last = layer(data[cut:], state)
        assert_same([torch.cat([first, second]), last], [whole, final])


def test_weights_start_as_in_the_authors_code() -> None:
    """Uniform with variance 1/D; gates with half of it, the skip with three times as much; v with 1/2; biases zero."""
    torch.manual_seed(1)
    cell = copy.deepcopy(ParallelRNN(300, 200, "sru").cells[0])
    variances = [part.var().item() * 300 for part in cell.weight_input.split(200, dim=1)]
    assert variances == pytest.approx([1, 0.5, 0.5, 3], rel=0.05)
    for weight in (cell.weight_hidden, cell.weight_reset):
        assert weight.var().item() == pytest.approx(0.5, rel=0.2) and weight.abs().max() <= 1.5**0.5
    assert not cell.bias.any()


def test_an_unknown_kind_is_refused_and_a_dropout_without_effect_warned_of() -> None:
    with pytest.raises(ValueError, match="kind must be sru, mingru or minlstm, got 'qrnn'"):
        ParallelRNN(3, 4, "qrnn")
    with pytest.warns(UserWarning, match="recurrent_dropout does nothing"):
        ParallelRNN(3, 4, "mingru", recurrent_dropout=0.1)
