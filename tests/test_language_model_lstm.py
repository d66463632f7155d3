"""The LSTM with variational dropouts: PyTorch's own without them, and its equations, step by step, with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from flair_nas.language_model.lstm import VariationalLSTM

D, H, T, B = 3, 5, 6, 4


def build(**options: float) -> VariationalLSTM:
    torch.manual_seed(0)
    return VariationalLSTM(D, H, **options).double()  # type: ignore[arg-type]


def data() -> Tensor:
    return torch.randn(T, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def equations(layer: nn.LSTM, xs: Tensor, h: Tensor, c: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A step at a time; h and c are [B, H]."""
    outputs = []
    for x in xs:
        gates = x @ layer.weight_ih_l0.t() + layer.bias_ih_l0 + (h * mask) @ layer.weight_hh_l0.t() + layer.bias_hh_l0
        i, f, g, o = gates.split(layer.hidden_size, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def test_without_dropout_it_is_pytorchs_own() -> None:
    lstm = build(num_layers=2)
    own = nn.LSTM(D, H, 2).double()
    own.load_state_dict(
        {name.removesuffix("_l0") + f"_l{k}": w for k in range(2) for name, w in lstm.layers[k].state_dict().items()}
    )
    output, state = lstm(data())
    expected, expected_state = own(data())
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, expected_state)


@pytest.mark.parametrize("trained", [True, False])
def test_the_mask_of_h_multiplies_the_state_where_it_enters_the_product(trained: bool) -> None:
    lstm = build(recurrent_dropout=0.5).train(trained)
    first = tuple(torch.randn(1, B, H, dtype=torch.float64, requires_grad=True) for _ in range(2))
    inputs = data().requires_grad_()
    torch.manual_seed(7)
    output, (hidden, cell) = lstm(inputs, first)
    torch.manual_seed(7)
    mask = torch.empty(B, H, dtype=torch.float64).bernoulli_(0.5) * 2 if trained else torch.ones(1).double()
    expected, h, c = equations(lstm.layers[0], inputs, first[0][0], first[1][0], mask)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close((hidden[0], cell[0]), (h, c))
    sources = [inputs, *first, *lstm.parameters()]
    weights = torch.randn_like(output), torch.randn_like(h), torch.randn_like(c)
    ours = torch.autograd.grad(sum((w * v).sum() for w, v in zip(weights, (output, hidden[0], cell[0]))), sources)
    theirs = torch.autograd.grad(sum((w * v).sum() for w, v in zip(weights, (expected, h, c))), sources)
    for found, wanted in zip(ours, theirs):
        torch.testing.assert_close(found, wanted)


def test_dropout_of_the_input_has_one_mask_per_sequence() -> None:
    lstm = build(input_dropout=0.5)
    seen: list[Tensor] = []
    lstm.layers[0].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    ones = torch.ones(T, 50, D, dtype=torch.float64)
    lstm(ones)
    assert torch.equal(seen[0], seen[0][:1].expand_as(seen[0]))
    assert sorted(set(seen[0].flatten().tolist())) == [0.0, 2.0]
    assert seen[0][0].std(dim=0).min() > 0  # sequences differ
    lstm.eval()(ones)
    assert torch.equal(seen[1], ones)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_under_autocast_states_and_output_stay_in_the_weights_precision(rate: float) -> None:
    lstm = build(num_layers=2, recurrent_dropout=rate, input_dropout=rate).float()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = lstm(data().float())
        output, state = lstm(data().float(), state)
    assert {tensor.dtype for tensor in (output, *state)} == {torch.float32}
    output.sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == torch.float32 for p in lstm.parameters())
