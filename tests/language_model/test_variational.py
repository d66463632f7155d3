"""LSTM and GRU with variational dropouts: PyTorch's own without them, and their equations, step by step, with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from flair_nas.language_model.variational import VariationalGRU, VariationalLSTM

D, H, T, B = 3, 5, 6, 4


Layer = VariationalLSTM | VariationalGRU
KINDS = pytest.mark.parametrize("kind", [VariationalLSTM, VariationalGRU])


def build(kind: type[Layer], **options: float) -> Layer:
    torch.manual_seed(0)
    return kind(D, H, **options).double()  # type: ignore[arg-type]


def data() -> Tensor:
    return torch.randn(T, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def equations(layer: nn.Module, xs: Tensor, states: list[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A step at a time; states are [B, H]."""
    (of_x, of_h, bias, other_bias), outputs = layer.parameters(), []
    for x in xs:
        from_x, from_h = x @ of_x.t() + bias, (states[0] * mask) @ of_h.t() + other_bias
        if isinstance(layer, nn.LSTM):
            i, f, g, o = (from_x + from_h).split(H, dim=1)
            c = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
            states = [torch.sigmoid(o) * torch.tanh(c), c]
        else:
            (r, z, n), (of_r, of_z, of_n) = from_x.split(H, dim=1), from_h.split(H, dim=1)
            new = torch.tanh(n + torch.sigmoid(r + of_r) * of_n)
            kept = torch.sigmoid(z + of_z)
            states = [(1 - kept) * new + kept * states[0]]
        outputs.append(states[0])
    return torch.stack(outputs), states


@KINDS
def test_without_dropout_it_is_pytorchs_own(kind: type[Layer]) -> None:
    layer = build(kind, num_layers=2)
    own = (nn.LSTM if kind is VariationalLSTM else nn.GRU)(D, H, 2).double()
    own.load_state_dict(
        {name.removesuffix("_l0") + f"_l{k}": w for k in range(2) for name, w in layer.layers[k].state_dict().items()}
    )
    output, state = layer(data())
    expected, expected_state = own(data())
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(state, expected_state)
    torch.testing.assert_close(layer(data(), state), own(data(), expected_state))


@KINDS
@pytest.mark.parametrize("trained", [True, False])
def test_the_mask_of_h_multiplies_the_state_where_it_enters_the_product(kind: type[Layer], trained: bool) -> None:
    layer = build(kind, recurrent_dropout=0.5).train(trained)
    count = 2 if kind is VariationalLSTM else 1
    first = [torch.randn(1, B, H, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    inputs = data().requires_grad_()
    torch.manual_seed(7)
    output, state = layer(inputs, tuple(first) if count == 2 else first[0])
    found = [part[0] for part in (state if count == 2 else [state])]
    torch.manual_seed(7)
    mask = torch.empty(B, H, dtype=torch.float64).bernoulli_(0.5) * 2 if trained else torch.ones(1).double()
    expected, states = equations(layer.layers[0], inputs, [part[0] for part in first], mask)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(found, states)
    sources = [inputs, *first, *layer.parameters()]
    weights = [torch.randn_like(part) for part in (output, *found)]
    ours = torch.autograd.grad(sum((w * v).sum() for w, v in zip(weights, (output, *found))), sources)
    theirs = torch.autograd.grad(sum((w * v).sum() for w, v in zip(weights, (expected, *states))), sources)
    torch.testing.assert_close(ours, theirs)


@KINDS
def test_dropout_of_the_input_has_one_mask_per_sequence(kind: type[Layer]) -> None:
    layer = build(kind, input_dropout=0.5)
    seen: list[Tensor] = []
    layer.layers[0].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    ones = torch.ones(T, 50, D, dtype=torch.float64)
    layer(ones)
    assert torch.equal(seen[0], seen[0][:1].expand_as(seen[0]))
    assert sorted(set(seen[0].flatten().tolist())) == [0.0, 2.0]
    assert seen[0][0].std(dim=0).min() > 0  # sequences differ
    layer.eval()(ones)
    assert torch.equal(seen[1], ones)


@KINDS
@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_under_autocast_states_and_output_stay_in_the_weights_precision(kind: type[Layer], rate: float) -> None:
    layer = build(kind, num_layers=2, recurrent_dropout=rate, input_dropout=rate).float()
    with torch.autocast("cpu", torch.bfloat16):
        output, state = layer(data().float())
        output, state = layer(data().float(), state)
    assert {tensor.dtype for tensor in (output, *state)} == {torch.float32}
    output.sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == torch.float32 for p in layer.parameters())
