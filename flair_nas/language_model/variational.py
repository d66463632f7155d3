"""PyTorch's LSTM and GRU with the variational dropouts of a searched layer: baselines.

The mask of h multiplies h_{t-1} where it enters the product, one mask per sequence (Gal and Ghahramani, 2016), as in
`SearchedRNN`. AWD-LSTM's weight dropout is not available. It drops the same entries of the matrix in all sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn

from flair_nas.nn.kernels.dispatch import wants_equations
from flair_nas.nn.kernels.sequence_gradient import Products, run_sequence
from flair_nas.nn.matrix_product import masked, product_dtype
from flair_nas.nn.recurrence import draw_mask

_Layer: TypeAlias = "nn.LSTM | nn.GRU"
_State: TypeAlias = "Tensor | tuple[Tensor, ...]"
_Ran = tuple[Tensor, list[Tensor]]
"""The output of a layer, [T, B, H], and the parts of its final state, [B, H]."""


class _Variational(nn.Module):
    """A stack of layers with inputs of size D and states of size H. Each layer has masks of its own."""

    _kind: ClassVar[type[nn.LSTM] | type[nn.GRU]]
    _states: ClassVar[int]  # h, and c
    _run_masked: ClassVar[Callable[..., _Ran]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.input_dropout, self.recurrent_dropout = input_dropout, recurrent_dropout
        sizes = [input_size, *[hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(self._kind(size, hidden_size) for size in sizes)

    def forward(self, input: Tensor, state: _State | None = None) -> tuple[Tensor, _State]:
        """Run all layers over whole sequences.

        Args:
            input: [T, B, D].
            state: the final state of an earlier call; zeros when None.

        Returns:
            The last layer's output, [T, B, H], and the final state in PyTorch's form: h, [num_layers, B, H], or (h, c).
        """
        layers = cast("list[_Layer]", list(self.layers))
        dtype = _weights(layers[0])[0].dtype
        if state is None:
            zeros = input.new_zeros(self.num_layers, input.shape[1], self.hidden_size, dtype=dtype)
            state = (zeros,) * self._states
        output, ends = input, []
        for layer, *firsts in zip(layers, *_split(state)):  # [B, H] each
            output = masked(output, draw_mask(self.training and self.input_dropout, output, *output.shape[1:]))
            mask = draw_mask(self.training and self.recurrent_dropout, firsts[0], *firsts[0].shape)  # [B, H]
            if mask is None:
                output, last = layer(output, _join([first[None] for first in firsts]))  # [T, B, H], [1, B, H] each
                lasts = [part[0] for part in _split(last)]
            else:  # PyTorch's own recurrence has no such mask
                output, lasts = self._run_masked(layer, output.to(dtype), firsts, mask)
            output = output.to(dtype)  # under autocast it is of lower precision
            ends.append([last.to(dtype) for last in lasts])
        return output, _join([torch.stack(parts) for parts in zip(*ends)])

    def extra_repr(self) -> str:
        """Return the probabilities of the dropouts, for printing."""
        return f"input_dropout={self.input_dropout}, recurrent_dropout={self.recurrent_dropout}"


def _split(state: _State) -> tuple[Tensor, ...]:
    """Return the tensors of a state of PyTorch's layers."""
    return (state,) if isinstance(state, Tensor) else state


def _join(parts: list[Tensor]) -> _State:
    """Return a state of PyTorch's layers, a tensor or several, from its tensors."""
    return tuple(parts) if len(parts) > 1 else parts[0]


def _project(weight: Tensor, input: Tensor, bias: Tensor) -> Tensor:
    """Project an input [T, B, D], add the bias, and return the result as columns, [gates * H, T * B]."""
    return torch.mm(weight, input.flatten(0, 1).t()).to(input.dtype) + bias[:, None]


def _run(loop: Callable[..., Tensor], weight: Tensor, sources: dict[str, Tensor], mask: Tensor) -> Tensor:
    """Run a loop and return its columns as [steps, B, H]. `weight` of h is [gates * H, H], `mask` of h [B, H]."""
    columns = {name: tensor.contiguous() for name, tensor in (sources | {"mask": mask.t()}).items()}
    weights: dict[Hashable, Tensor] = {"hidden": weight.to(product_dtype(weight))}  # cast once, not at every step
    output = loop(Products(weights), **columns) if wants_equations() else run_sequence(loop, weights, columns)
    return output.t().reshape(-1, *mask.shape)


def _weights(layer: _Layer) -> list[Tensor]:
    """Return the weights of input, [gates * H, D], and of h, [gates * H, H], and both biases, [gates * H] each."""
    return [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]  # type: ignore[list-item]


def _run_lstm(layer: _Layer, input: Tensor, firsts: list[Tensor], mask: Tensor) -> _Ran:
    def loop(products: Products, projected: Tensor, hidden: Tensor, cell: Tensor, mask: Tensor) -> Tensor:
        # vectors are columns here: projected [4H, T * B], the others [H, B]
        outputs = []
        for step in torch.split(projected, hidden.shape[1], dim=1):
            gate_in, gate_forget, candidate, gate_out = (step + products("hidden", hidden * mask)).chunk(4)
            kept = torch.sigmoid(gate_forget) * cell
            cell = torch.addcmul(kept, torch.sigmoid(gate_in), torch.tanh(candidate))
            hidden = torch.sigmoid(gate_out) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.cat([*outputs, cell], dim=1)  # [H, (T + 1) * B]

    weight_input, weight, bias, other_bias = _weights(layer)
    projected = _project(weight_input, input, bias + other_bias)
    sources = {"projected": projected, "hidden": firsts[0].t(), "cell": firsts[1].t()}
    output = _run(loop, weight, sources, mask)  # [T + 1, B, H]
    return output[:-1], [output[-2], output[-1]]


def _run_gru(layer: _Layer, input: Tensor, firsts: list[Tensor], mask: Tensor) -> _Ran:
    def loop(products: Products, projected: Tensor, hidden: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        # vectors are columns here: projected [3H, T * B], bias [H, 1], the others [H, B]
        outputs = []
        for step in torch.split(projected, hidden.shape[1], dim=1):
            reset, update, candidate = step.chunk(3)  # [H, B] each
            to_reset, to_update, to_candidate = products("hidden", hidden * mask).chunk(3)
            candidate = torch.tanh(candidate + torch.sigmoid(reset + to_reset) * (to_candidate + bias))
            hidden = torch.lerp(candidate, hidden, torch.sigmoid(update + to_update))
            outputs.append(hidden)
        return torch.cat(outputs, dim=1)  # [H, T * B]

    weight_input, weight, bias, other_bias = _weights(layer)
    *gate_biases, candidate_bias = other_bias.chunk(3)  # the reset gate multiplies the last, so it stays apart
    projected = _project(weight_input, input, bias + torch.cat([*gate_biases, torch.zeros_like(candidate_bias)]))
    sources = {"projected": projected, "hidden": firsts[0].t(), "bias": candidate_bias[:, None]}
    output = _run(loop, weight, sources, mask)  # [T, B, H]
    return output, [output[-1]]


class VariationalLSTM(_Variational):
    """`torch.nn.LSTM` (Hochreiter and Schmidhuber, 1997) with one dropout mask of x and of h per sequence."""

    _kind, _states, _run_masked = nn.LSTM, 2, staticmethod(_run_lstm)


class VariationalGRU(_Variational):
    """`torch.nn.GRU` (Cho et al., 2014) with one dropout mask of x and of h per sequence.

    The mask does not apply to the part of h_{t-1} that the update gate keeps.
    """

    _kind, _states, _run_masked = nn.GRU, 1, staticmethod(_run_gru)
