"""An LSTM with the variational dropouts of a searched layer, to compare the latter with."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from flair_nas.kernels.choice import wants_equations
from flair_nas.kernels.sequence_gradient import Products, run_by_autograd, run_sequence

LSTMState = tuple[Tensor, Tensor]
"""Last h and last c, [num_layers, B, H] each."""


class VariationalLSTM(nn.Module):
    """`torch.nn.LSTM` with dropouts of x and h whose masks last a whole sequence (Gal and Ghahramani, 2016).

    The mask of h multiplies h_{t-1} where it enters the product, one mask per sequence, as in `SearchedRNN`. The weight
    dropout of AWD-LSTM, which drops entries of the matrix and so acts on all sequences alike, is another thing and is
    not built.

    Args:
        input_size: D.
        hidden_size: H.
        num_layers: layers on top of one another.
        input_dropout: variational dropout of the input of each layer.
        recurrent_dropout: variational dropout of h.
    """

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
        self.layers = nn.ModuleList(nn.LSTM(size, hidden_size) for size in sizes)

    def forward(self, input: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """Runs all layers over whole sequences.

        Args:
            input: [T, B, D].
            state: what an earlier call returned; zeros when None.

        Returns:
            The last layer's output, [T, B, H], and the final state.
        """
        layers = cast("list[nn.LSTM]", list(self.layers))
        dtype = _weights(layers[0])[0].dtype
        if state is None:
            zeros = input.new_zeros(self.num_layers, input.shape[1], self.hidden_size, dtype=dtype)
            state = (zeros, zeros)
        output, ends = input, []
        for layer, hidden, cell in zip(layers, *state):  # states [B, H]
            mask = self._mask(self.input_dropout, output[0])  # [B, D]
            output = output if mask is None else output * mask
            mask = self._mask(self.recurrent_dropout, hidden)  # [B, H]
            if mask is None:
                output, (hidden, cell) = layer(output, (hidden[None], cell[None]))  # [T, B, H], [1, B, H] each
                hidden, cell = hidden[0], cell[0]
            else:  # PyTorch's own recurrence knows no such mask
                output, hidden, cell = _run(layer, output.to(dtype), hidden, cell, mask)
            output = output.to(dtype)  # under autocast it is of lower precision
            ends.append((hidden.to(dtype), cell.to(dtype)))
        hidden, cell = (torch.stack(parts) for parts in zip(*ends))  # [num_layers, B, H] each
        return output, (hidden, cell)

    def extra_repr(self) -> str:
        """What the submodules do not show, for printing."""
        return f"input_dropout={self.input_dropout}, recurrent_dropout={self.recurrent_dropout}"

    def _mask(self, probability: float, like: Tensor) -> Tensor | None:
        if not (self.training and probability):
            return None
        return torch.empty_like(like).bernoulli_(1 - probability).div_(1 - probability)


def _run(layer: nn.LSTM, input: Tensor, hidden: Tensor, cell: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One layer with a mask on h.

    Args:
        layer: its parameters.
        input: [T, B, D].
        hidden: h before the first step, [B, H].
        cell: c before the first step, [B, H].
        mask: [B, H].

    Returns:
        The output [T, B, H], the last h and the last c, [B, H] each.
    """
    steps, batch = input.shape[:2]

    def loop(products: Products, projected: Tensor, hidden: Tensor, cell: Tensor, mask: Tensor) -> Tensor:
        # vectors are columns here: projected [4H, T * B], the others [H, B]
        outputs = []
        for step in projected.split(batch, dim=1):
            gate_in, gate_forget, candidate, gate_out = (step + products("hidden", hidden * mask)).chunk(4)  # [H, B]
            kept = torch.sigmoid(gate_forget) * cell
            cell = torch.addcmul(kept, torch.sigmoid(gate_in), torch.tanh(candidate))
            hidden = torch.sigmoid(gate_out) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.cat([*outputs, cell], dim=1)  # [H, (T + 1) * B]

    of_input, weight, bias, other_bias = _weights(layer)
    projected = torch.mm(of_input, input.flatten(0, 1).t()).to(input.dtype)  # [4H, T * B]
    projected = projected + (bias + other_bias)[:, None]
    sources = {"projected": projected, "hidden": hidden.t(), "cell": cell.t(), "mask": mask.t()}
    sources = {name: tensor.contiguous() for name, tensor in sources.items()}
    # [4H, H], as a product with columns takes it; under autocast cast once, not at every step
    weight = weight.to(torch.mm(weight[:1], weight[:1].t()).dtype)
    run = run_by_autograd if wants_equations() else run_sequence
    result = run(loop, {"hidden": weight}, sources).t()  # [(T + 1) * B, H]
    output = result[: steps * batch].reshape(steps, batch, -1)  # [T, B, H]
    return output, output[-1], result[steps * batch :]


def _weights(layer: nn.LSTM) -> list[Tensor]:
    """Those of input, [4H, D], and of h, [4H, H], and their biases, [4H] each."""
    return [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]  # type: ignore[list-item]
