"""Layers without a matrix in the recurrence, against their equations, a step and a sequence at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from benchmarks.characters.modern_layers import EPSILON, LAYERS, Cell, K, Layer

D, H, LENGTHS = 6, 32, (5, 3, 1)


def step_by_step(cell: Cell, inputs: Tensor) -> Tensor:
    """Compute the outputs, [T, H], of one sequence, [T, D], by plain autograd."""
    weights, parts = cell.cell, cell.parts
    state = torch.zeros(H // K, K, K) if "matrix" in parts else torch.zeros(H)
    outputs = []
    for t in range(len(inputs)):
        x = inputs[t]
        if "conv" in parts:
            x = sum(cell.taps[k] * inputs[t - k] for k in range(4) if t >= k)
        columns, before = (x @ weights.weight_input).split(H), state
        if cell.base == "mingru":
            bias_z, bias_u = weights.bias.split(H)
            c, u, v = columns[0] + bias_z, torch.tanh(columns[1] + bias_u), torch.zeros(())
        elif cell.base == "sru":
            c, u, v = -columns[1] - weights.bias[0], columns[0], -weights.weight_hidden
        else:
            c, u, v = columns[0], torch.tanh(columns[1]), weights.weight_hidden
        if "matrix" in parts:
            c, u = c.view(-1, K, 1), u.view(-1, 1, K)
        state = state + torch.sigmoid(c + v * state) * (u - state)
        y = state
        if "matrix" in parts:
            y = torch.einsum("ni,nij->nj", (x @ cell.query).view(-1, K), state)
            y = (y / torch.sqrt((y * y).mean(1, keepdim=True) + EPSILON)).flatten() * cell.gain
        if "gate" in parts:
            y = y * torch.sigmoid(x @ cell.gate)
        if cell.base == "sru":
            reset = columns[2] + weights.bias[1]
            reset = torch.sigmoid(reset if "matrix" in parts else reset + weights.weight_reset * before)
            y = reset * y + (1 - reset) * (columns[3] if len(columns) > 3 else x * math.sqrt(3))
        if cell.base == "ours":
            nodes = [y]
            for operation, weight in zip((torch.relu, torch.tanh), weights.weight_nodes):
                a, b = (nodes[-1] @ weight).split(H)
                nodes.append(nodes[-1] + torch.sigmoid(a) * (operation(b) - nodes[-1]))
            y = (nodes[1] + nodes[2]) / 2
        outputs.append(y)
    return torch.stack(outputs)


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Compute in float64, from fixed weights."""
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("size", [D, H])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients_are_those_of_the_equations(name: str, size: int) -> None:
    layer = Layer(name, size, H, bidirectional=True, init_range=0.3)
    for parameter in layer.parameters():  # gains and biases, too
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    sequences = [torch.randn(length, size, requires_grad=True) for length in LENGTHS]
    wanted = [
        torch.cat([step_by_step(layer.cells[0], x), step_by_step(layer.cells[1], x.flip(0)).flip(0)], dim=1)
        for x in sequences
    ]
    output, lengths = pad_packed_sequence(layer(pack_sequence(sequences))[0], batch_first=True)
    outputs = [row[:length] for row, length in zip(output, lengths)]
    weights = [torch.randn_like(row) for row in wanted]
    leaves = [*sequences, *layer.parameters()]
    gradients = [
        torch.autograd.grad(sum((row * weight).sum() for row, weight in zip(rows, weights)), leaves)
        for rows in (outputs, wanted)
    ]
    torch.testing.assert_close(outputs, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", LAYERS)
def test_chunks_equal_the_whole(name: str) -> None:
    layer, inputs, chunks, state = Layer(name, D, H, num_layers=2), torch.randn(7, 3, D), [], torch.zeros(2, 3, H)
    for chunk in inputs.split((1, 4, 2)):
        output, state = layer(chunk, state)
        chunks.append(output)
    torch.testing.assert_close(torch.cat(chunks), layer(inputs)[0], rtol=0, atol=1e-12)
