"""Cells of published recurrences without a sequential matrix product, as baselines: SRU, minGRU and minLSTM."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from flair_nas.nn.cell import CellBase, Edges
from flair_nas.nn.kernels.elementwise_loop import Loop
from flair_nas.nn.matrix_product import product
from flair_nas.nn.packing import Packing

SKIP_SCALE = math.sqrt(3)  # of the skip term: √(1 + 2 e^b), where b = 0 is the bias of the reset gate at the start


class SRUCell(CellBase):
    """Cell of the Simple Recurrent Unit (Lei et al., 2018). Its state is c.

    Shape of the parameters, with input size D and hidden size H:
        weight_input [D, 3H], columns [u | forget gate | reset gate], or [D, 4H] with [... | skip] if D is not H;
        weight_hidden [H], v_f; weight_reset [H], v_r; bias [2, H], b_f and b_r.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        width = (3 if input_size == hidden_size else 4) * hidden_size
        super().__init__(input_size, hidden_size, width, "elementwise")
        self.weight_hidden = nn.Parameter(torch.empty(hidden_size))
        self.weight_reset = nn.Parameter(torch.empty(hidden_size))
        self.bias = nn.Parameter(torch.empty(2, hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from the global generator, as the authors' code does."""
        nn.init.uniform_(self.weight_input, -math.sqrt(3 / self.input_size), math.sqrt(3 / self.input_size))
        for weight in (self.weight_hidden, self.weight_reset):
            nn.init.uniform_(weight, -math.sqrt(1.5), math.sqrt(1.5))
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            _, forget, reset, *skip = self.weight_input.split(self.hidden_size, dim=1)
            for gate in (forget, reset):
                gate.mul_(math.sqrt(0.5))
            for matrix in skip:
                matrix.mul_(SKIP_SCALE)

    def run_elementwise(
        self, data: Tensor, packing: Packing, hidden: Tensor, mask: Tensor | None, loop: Loop, edge: Edges
    ) -> tuple[Tensor, Tensor]:
        """Run the cell over a ragged batch (Lei et al., 2018, eq. 3 to 7).

        f_t = σ(p_f + v_f ⊙ c_{t-1} + b_f), c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ u_t,
        r_t = σ(p_r + v_r ⊙ c_{t-1} + b_r), h_t = r_t ⊙ c_t + (1 - r_t) ⊙ x̂_t.

        Args and returns are those of `CellBase.run_elementwise`.
        """
        u, forget, reset, *skip = product(data, self.weight_input).split(self.hidden_size, dim=1)  # [S, H] each
        v_forget, v_reset = self.weight_hidden[None], self.weight_reset[None]  # [1, H] each
        if mask is not None:
            v_forget, v_reset = v_forget * mask, (v_reset * mask)[packing.column]  # [B, H], [S, H]
        pre = torch.cat([-(forget + self.bias[0]), u], dim=1)  # [S, 2H]; 1 - σ(f) = σ(-f)
        states = loop("identity", pre, -v_forget, hidden, packing)  # [S, H]
        before = packing.before(states, hidden)  # c_{t-1}, [S, H]
        gate = torch.sigmoid(torch.addcmul(reset + self.bias[1], v_reset, before))
        return torch.lerp(skip[0] if skip else data * SKIP_SCALE, states, gate), states


class MinGRUCell(CellBase):
    """Cell of minGRU (Feng et al., 2024) with tanh as its candidate.

    Shape of the parameters, with input size D and hidden size H:
        weight_input [D, 2H], columns [gate | candidate]; bias [2H].
    """

    blocks = 2
    masks_states = False

    def __init__(self, input_size: int, hidden_size: int) -> None:
        width = self.blocks * hidden_size
        super().__init__(input_size, hidden_size, width, "elementwise")
        self.bias = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from the global generator, as `torch.nn.Linear` does."""
        for weight in (self.weight_input, self.bias):
            nn.init.uniform_(weight, -1 / math.sqrt(self.input_size), 1 / math.sqrt(self.input_size))

    def run_elementwise(
        self, data: Tensor, packing: Packing, hidden: Tensor, mask: Tensor | None, loop: Loop, edge: Edges
    ) -> tuple[Tensor, Tensor]:
        """Compute h_t = (1 - z_t) ⊙ h_{t-1} + z_t ⊙ tanh(x_t W_h + b_h), with z_t = σ(x_t W_z + b_z), for all steps.

        Args and returns are those of `CellBase.run_elementwise`.
        """
        pre = self.gate_and_candidate(product(data, self.weight_input) + self.bias)  # [S, 2H]
        states = loop("tanh", pre, self.bias.new_zeros(1, self.hidden_size), hidden, packing)  # without v
        return states, states

    def gate_and_candidate(self, projected: Tensor) -> Tensor:
        """Return the pre-activations of gate and candidate, [S, 2H]."""
        return projected


class MinLSTMCell(MinGRUCell):
    """Cell of minLSTM (Feng et al., 2024) with tanh as its candidate.

    It is minGRU with the gate z_t = i_t / (f_t + i_t) = σ(log i_t - log f_t), with the sigmoids i_t and f_t.

    Shape of the parameters, with input size D and hidden size H:
        weight_input [D, 3H], columns [input gate | forget gate | candidate]; bias [3H].
    """

    blocks = 3

    def gate_and_candidate(self, projected: Tensor) -> Tensor:
        """Return the pre-activations of gate and candidate, [S, 2H]."""
        enter, forget, candidate = projected.split(self.hidden_size, dim=1)  # [S, H] each
        return torch.cat([functional.logsigmoid(enter) - functional.logsigmoid(forget), candidate], dim=1)
