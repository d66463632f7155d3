"""Layers without a matrix in the recurrence: minGRU, SRU and ours, each with parts that the field's layers have.

`LAYERS` names twelve, a base and its parts. `register` makes them known to Flair's character models and taggers, in
this process. What they score is measured by `benchmarks.characters.modern`.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from flair.models import SequenceTagger
from flair.nn.recurrent import rnn_layers
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from flair_nas.genotype import Genotype
from flair_nas.library import layer_spec
from flair_nas.nn.cell import SearchedCell, edge
from flair_nas.nn.init import default_range, papers_range
from flair_nas.nn.kernels.elementwise_loop import run_loop
from flair_nas.nn.packing import Packing
from flair_nas.nn.parallel import SKIP_SCALE, MinGRUCell, SRUCell
from flair_nas.tagging import registration, training

LAYERS = tuple(
    map("-".join, itertools.product(("mingru", "sru", "ours"), ("conv", "matrix", "gate", "conv-matrix-gate")))
)
"""Each base with one part alone, and with all three."""
TAPS, K = 4, 16
"""Width of the convolution; rows and columns of a head."""
EPSILON = 1e-5


class MatrixLoop(torch.autograd.Function):
    """The loop of a matrix state, with exact gradients. The final state is returned without a gradient."""

    @staticmethod
    def forward(
        ctx: Any, c: Tensor, u: Tensor, q: Tensor, v: Tensor | None, start: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Compute y_t = q_t S_t of each head, with S_t = S_{t-1} + σ(c_t 1ᵀ + V ⊙ S_{t-1}) ⊙ (1 u_tᵀ - S_{t-1}).

        Without V this is S_t = diag(1 - z_t) S_{t-1} + z_tᵀ u_t with z_t = σ(c_t).

        Args:
            ctx: the context.
            c: c, [N, n, K, 1] for n heads; rows of a ragged batch.
            u: u, [N, n, 1, K].
            q: q, [N, n, K, 1].
            v: V, [n, K, K], or None.
            start: S before the first step, [B, n, K, K].
            sizes: sequences with a token at each step, [T].

        Returns:
            y, [N, n, K], and S of all steps, [N, n, K, K].
        """
        states = c.new_empty(len(c), *start.shape[1:])
        read = c.new_empty(len(c), *start.shape[1:3])
        gates = torch.sigmoid(c) if v is None else torch.empty_like(states)
        scratch, last = torch.empty_like(start), start
        for c_t, u_t, q_t, gate, state, y in zip(*(part.split(sizes) for part in (c, u, q, gates, states, read))):
            last = last[: len(c_t)]
            if v is not None:
                torch.sigmoid_(torch.addcmul(c_t, v, last, out=gate))
            last = torch.lerp(last, u_t.expand_as(last), gate.expand_as(last), out=state)
            torch.sum(torch.mul(last, q_t, out=scratch[: len(c_t)]), 2, out=y)
        ctx.sizes = sizes
        ctx.save_for_backward(u, q, v, start, gates, states)
        ctx.mark_non_differentiable(states)
        ctx.set_materialize_grads(False)
        return read, states

    @staticmethod
    def backward(ctx: Any, grad_read: Tensor, _: None) -> tuple[Tensor | None, ...]:
        """Run backwards: δ_{t-1} = δ_t ⊙ (1 - G_t) + V ⊙ δ_t ⊙ (1 u_tᵀ - S_{t-1}) ⊙ G_t ⊙ (1 - G_t)."""
        u, q, v, start, gates, states = ctx.saved_tensors
        grad_c, grad_u, grad_q = torch.empty_like(q), torch.empty_like(u), torch.empty_like(q)
        tensors = (u, q, gates, states, grad_read.unsqueeze(2), grad_c, grad_u, grad_q)
        steps = [*zip(*(part.split(ctx.sizes) for part in tensors))]
        delta, grad_v, one, other = (torch.zeros_like(start) for _ in range(4))  # new memory would cost as much again
        for t in range(len(steps) - 1, -1, -1):
            u_t, q_t, gate, state, grad_y, to_c, to_u, to_q = steps[t]
            size = len(u_t)
            before = start[:size] if t == 0 else steps[t - 1][3][:size]
            now, product, pre = delta[:size], one[:size], other[:size]
            now.addcmul_(q_t, grad_y)
            torch.sum(torch.mul(state, grad_y, out=product), 3, keepdim=True, out=to_q)
            torch.sub(u_t, before, out=pre).mul_(now)
            torch.sum(torch.mul(now, gate, out=product), 2, keepdim=True, out=to_u)
            now.sub_(product)
            if v is not None:
                torch.ops.aten.sigmoid_backward.grad_input(pre, gate, grad_input=pre)
                grad_v[:size].addcmul_(pre, before)
                now.addcmul_(pre, v)
            torch.sum(pre, 3, keepdim=True, out=to_c)
        if v is None:
            return grad_c.mul_(gates).mul_(1 - gates), grad_u, grad_q, None, None, None
        return grad_c, grad_u, grad_q, grad_v.sum(0), None, None


class Cell(nn.Module):
    """One layer in one direction. No product of the state with a matrix is inside its loop.

    [c | u | ...] = x'_t W_x, with σ the logistic function and the columns and biases of the base:

    - x'_t = Σ_k w_k ⊙ x_{t-k} with k = 0 to 3 (`conv`), otherwise x'_t = x_t.
    - s_t = s_{t-1} + σ(c_t + v ⊙ s_{t-1}) ⊙ (u_t - s_{t-1}) and y_t = s_t. minGRU and ours have tanh in u_t; minGRU has
      no v. SRU has 1 - σ(f) for σ(c), so c and v are those of its forget gate, negated.
    - With `matrix`, each head of 16 units has a state S of 16 × 16 instead: see `MatrixLoop`. Then q_t = x'_t W_q and
      y_t = g ⊙ norm(q_t S_t), where norm(a) = a / √(mean(a²) + ε). So c rules rows and u fills columns, as in HGRN2.
    - With `gate`, y_t becomes y_t ⊙ σ(x'_t W_g).
    - Output of minGRU: y_t.
    - Output of SRU: r_t ⊙ y_t + (1 - r_t) ⊙ x̂_t with r_t = σ(p_t + v_r ⊙ s_{t-1} + b_r); no v_r for a matrix state.
    - Output of ours: (s_1 + s_2) / 2 of two highway nodes, s_1 = y + σ(a) ⊙ (relu(b) - y) with [a | b] = y W_1, and s_2
      the same of s_1 with tanh and W_2.

    Args:
        name: base and parts, joined by hyphens.
        input_size: D.
        hidden_size: H.
        init_range: initialisation bound of ours; the other bases start as in their authors' code.
    """

    def __init__(self, name: str, input_size: int, hidden_size: int, init_range: float) -> None:
        super().__init__()
        self.base, *self.parts = name.split("-")
        sizes = input_size, hidden_size
        if self.base == "ours":
            genotype = dataclasses.replace(Genotype.parse("relu0-tanh1"), recurrence="elementwise")
            self.cell = SearchedCell(*sizes, genotype, init_range)
        else:
            self.cell = {"mingru": MinGRUCell, "sru": SRUCell}[self.base](*sizes)
        bound = {"mingru": 1 / math.sqrt(input_size), "sru": math.sqrt(3 / input_size)}.get(self.base, init_range)
        self.history, self.depth = 0, 1
        if "conv" in self.parts:
            self.history = TAPS - 1
            self.taps = nn.Parameter(torch.empty(TAPS, input_size).uniform_(-0.5, 0.5))
            nn.init.ones_(self.taps.detach()[0])
        if "matrix" in self.parts:
            self.depth, heads = K, (hidden_size // K, K, K)
            self.query = nn.Parameter(torch.empty(sizes).uniform_(-bound, bound))
            self.gain = nn.Parameter(torch.ones(hidden_size))
            if self.base != "mingru":
                limit = math.sqrt(1.5) if self.base == "sru" else 0.5  # as without the part
                self.cell.weight_hidden = nn.Parameter(torch.empty(heads).uniform_(-limit, limit))
            if self.base == "sru":
                self.cell.weight_reset = None
        if "gate" in self.parts:
            self.gate = nn.Parameter(torch.empty(sizes).uniform_(-bound, bound))
        self.state_size = self.history * input_size + hidden_size * self.depth

    def forward(self, data: Tensor, packing: Packing, start: Tensor) -> tuple[Tensor, Tensor]:
        """Run the cell over a ragged batch.

        Args:
            data: packed input, [N, D].
            packing: positions of the tokens.
            start: the state before, [B, state_size]: the last three inputs, latest first, and s or S.

        Returns:
            Packed output, [N, H], and the state after each sequence, [B, state_size], without gradients.
        """
        past, state = start.tensor_split([self.history * data.shape[1]], dim=1)
        if self.history:
            data, past = self.convolve(data, packing, past)
        cell, v = self.cell, getattr(self.cell, "weight_hidden", None)
        columns = (data @ cell.weight_input).split(cell.hidden_size, dim=1)
        if self.base == "sru":
            u, forget, *rest = columns
            terms = -(forget + cell.bias[0]), u, -v
        else:
            c, u = columns if v is not None else [part + b for part, b in zip(columns, cell.bias.chunk(2))]
            terms = c, torch.tanh(u), v
        y, state, before = self.run_state(data, terms, packing, state)
        if "gate" in self.parts:
            y = y * torch.sigmoid(data @ self.gate)
        if self.base == "sru":
            reset = rest[0] + cell.bias[1]
            reset = reset if before is None else torch.addcmul(reset, cell.weight_reset, before)
            y = torch.lerp(rest[1] if rest[1:] else data * SKIP_SCALE, y, torch.sigmoid(reset))
        elif self.base == "ours":
            first = edge("relu", y @ cell.weight_nodes[0], y)
            y = (first + edge("tanh", first @ cell.weight_nodes[1], first)) / 2
        return y, torch.cat([past, state], dim=1).detach()

    def convolve(self, data: Tensor, packing: Packing, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return x', [N, D], and the last inputs, [B, 3D]."""
        blocks = past.unflatten(1, (self.history, -1)).transpose(0, 1)  # [3, B, D]
        extended = torch.cat([blocks.flatten(0, 1), data])
        mixed = data * self.taps[0]
        for lag in range(1, TAPS):
            rows = packing.lagged_rows(packing.time, packing.column, lag, self.history)
            mixed = torch.addcmul(mixed, functional.embedding(rows, extended), self.taps[lag])
        return mixed, packing.last(extended, self.history).transpose(0, 1).flatten(1)

    def run_state(
        self, data: Tensor, terms: tuple[Tensor, Tensor, Tensor | None], packing: Packing, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return y, [N, H], the last states, [B, H or 16 H], and of SRU with a vector state s before each step."""
        c, u, v = terms
        if self.depth == 1:
            v = c.new_zeros(1, c.shape[1]) if v is None else v[None]
            states = run_loop("identity", torch.cat([c, u], dim=1), v, state, packing)
            return states, states[packing.ends()], packing.before(states, state) if self.base == "sru" else None
        c, u, q = (part.unflatten(1, (-1, K)) for part in (c, u, data @ self.query))  # [N, n, K]
        start = state.unflatten(1, (-1, K, K))
        read, states = MatrixLoop.apply(c[..., None], u[..., None, :], q[..., None], v, start, packing.sizes)
        y = (read * torch.rsqrt(read.square().mean(2, keepdim=True) + EPSILON)).flatten(1) * self.gain
        return y, states[packing.ends()].flatten(1), None


class Layer(nn.Module):
    """Cells in several layers and both directions, used as `torch.nn.GRU` is. The state of all cells is one tensor."""

    def __init__(
        self,
        name: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        init_range: float | None = None,
    ) -> None:
        super().__init__()
        self.num_layers, self.hidden_size, self.bidirectional, self.dropout = (
            num_layers, hidden_size, bidirectional, dropout
        )  # fmt: skip
        ways, init_range = 1 + bidirectional, init_range or papers_range(hidden_size)
        sizes = [hidden_size * ways if layer else input_size for layer in range(num_layers) for _ in range(ways)]
        self.cells = nn.ModuleList(Cell(name, size, hidden_size, init_range) for size in sizes)

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run over input [T, B, D], or packed; a state of another width, such as Flair's zeros, counts as zeros."""
        if isinstance(input, PackedSequence):
            output, state = self.run(input.data, input.batch_sizes.tolist(), None)
            return input._replace(data=output), state
        output, state = self.run(input.flatten(0, 1), [input.shape[1]] * len(input), hx)
        return output.unflatten(0, input.shape[:2]), state

    def run(self, data: Tensor, sizes: list[int], hx: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run over packed data, [N, D]; return the output and the states, [B, Z]."""
        packing = Packing(sizes, data.device)
        widths = [cell.state_size for cell in self.cells]
        known = hx is not None and hx.shape == (sizes[0], sum(widths))
        starts = (hx if known else data.new_zeros(sizes[0], sum(widths))).split(widths, dim=1)
        backward = packing.reversed_rows() if self.bidirectional else None
        ways, ends = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            outputs = []
            for way in range(ways):
                number = layer * ways + way
                output, end = self.cells[number](data[backward] if way else data, packing, starts[number])
                outputs.append(output[backward] if way else output)
                ends.append(end)
            data = torch.cat(outputs, dim=1)
            if layer < self.num_layers - 1:
                data = functional.dropout(data, self.dropout, self.training)
        return data, torch.cat(ends, dim=1)


def register() -> None:
    """Let Flair's character models and taggers take the names of `LAYERS`."""
    for name in LAYERS:
        rnn_layers[name] = (partial(Layer, name), 1)
    for module in (training, layer_spec, registration):
        module.LAYER_NAMES = (*module.LAYER_NAMES, *map(str.upper, LAYERS))
    build = SequenceTagger.RNN

    def build_layer(
        rnn_type: str, rnn_layers: int, hidden_size: int, bidirectional: bool, rnn_input_dim: int
    ) -> nn.Module:
        if rnn_type.lower() not in LAYERS:
            return build(rnn_type, rnn_layers, hidden_size, bidirectional, rnn_input_dim)
        sizes = rnn_input_dim, hidden_size, rnn_layers, bidirectional
        return Layer(rnn_type.lower(), *sizes, init_range=default_range(hidden_size))

    SequenceTagger.RNN = staticmethod(build_layer)
