"""One layer in one direction over a ragged batch: by the equations, step by step, or by an engine."""

from __future__ import annotations

import torch
from torch import Tensor

from flair_nas.nn.cell import CellBase, edge
from flair_nas.nn.kernels import columns, dispatch
from flair_nas.nn.kernels.elementwise_loop import loop_by_equations, loop_on, run_loop
from flair_nas.nn.kernels.engine import Engine, Recurrence
from flair_nas.nn.kernels.gate import state_gate_scale
from flair_nas.nn.kernels.native import elementwise, run
from flair_nas.nn.kernels.tracing import untraced
from flair_nas.nn.matrix_product import product, product_dtype
from flair_nas.nn.packing import Packing

ENGINES: dict[str, Engine] = {"native": run.run, "columns": columns.run}
"""Engines by name."""

Start = tuple[Tensor, Tensor, Tensor]
"""State of a direction: the last h, [B, H]; inputs before the next step, [m, B, D]; earlier states, [m - 1, B, H]."""

Inputs = tuple[Tensor, Packing, Tensor, Tensor, Tensor | None, Tensor | None]
"""Inputs of a cell: packed data, [S, D], and its positions; the last h, [B, H], and earlier states, [m - 1, B, H]; with
a state gate past inputs, latest first, then the data, [m * B + S, D]; the variational mask of the states, [B, H]."""


def run_cell(
    cell: CellBase, dropouts: tuple[float, float], data: Tensor, packing: Packing, start: Start
) -> tuple[Tensor, Start]:
    """Run one layer in one direction over packed data, [S, D]; return packed output, [S, H], and the final state.

    `dropouts` are variational, of the input and of the states. The state of an elementwise recurrence is s_0.
    """
    hidden, inputs, states = start
    data = data.to(cell.weight_input.dtype)  # under autocast the input may come from a product of lower precision
    batch = packing.batch
    input_mask = draw_mask(dropouts[0], data, batch, data.shape[-1])  # [B, D]
    mask = draw_mask(dropouts[1], hidden, batch, hidden.shape[-1])  # [B, H]
    past = None
    if cell.state_gate is not None:
        past = torch.cat([inputs.flatten(0, 1), data])  # [m * B + S, D]
        inputs = packing.last(past, cell.state_gate.history)
        if input_mask is not None:
            columns_before = torch.arange(packing.batch, device=past.device).repeat(cell.state_gate.history)
            past = past * input_mask[torch.cat([columns_before, packing.column])]
    if input_mask is not None:
        data = data * input_mask[packing.column]
    # torch.compile may trace the equations; engines take no empty batch
    by_equations = dispatch.wants_equations() or not packing.batch
    if cell.recurrence == "elementwise":
        if by_equations:
            output, state = cell.run_elementwise(data, packing, hidden, mask, loop_by_equations, edge)
        else:
            output, state = run_elementwise_engine(cell, data, packing, hidden, mask)
        return output, (state[packing.ends()], inputs, states)
    run = run_equations if by_equations else run_engine
    output = run(cell, (data, packing, hidden, states, past, mask))
    if cell.input_gate is not None:
        earlier = torch.cat([hidden, states.flatten(0, 1), output])  # [m * B + S, H]
        states = packing.last(earlier, cell.input_gate.history)[1:]
    return output, (output[packing.ends()], inputs, states)


@untraced
def run_elementwise_engine(
    cell: CellBase, data: Tensor, packing: Packing, hidden: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Run an elementwise recurrence with the fastest loop and edges available."""
    engine = dispatch.engine_for(True, cell.weight_input, product_dtype(cell.weight_input))
    if engine == "native":
        return cell.run_elementwise(data, packing, hidden, mask, elementwise.run_loop, elementwise.run_edge)
    exact = cell.weight_input.dtype in (torch.float32, torch.float64)  # Triton's sigmoid takes no others
    loop = loop_on(data.device) if exact and dispatch.setting() == "auto" else run_loop
    return cell.run_elementwise(data, packing, hidden, mask, loop, edge)


def run_equations(cell: CellBase, inputs: Inputs) -> Tensor:
    """Run a cell by the equations of gates (ESS eq. 5 and 6) and cell, step by step, by plain autograd."""
    data, packing, hidden, states, past, mask = inputs
    scales = None
    if cell.state_gate is not None:
        assert past is not None
        history = cell.state_gate.history
        rows = [packing.lagged_rows(packing.time, packing.column, lag, history) for lag in range(1, history + 1)]
        scales = cell.state_gate.scale([past[lagged] for lagged in rows]).split(packing.sizes)  # T times [B_t, H]
    last = [hidden, *states]  # h_{t-1}, h_{t-2}, ...
    outputs: list[Tensor] = []
    read = data if cell.input_gate is not None else product(data, cell.weight_input)  # [S, D] or [S, W]
    for t, x in enumerate(read.split(packing.sizes)):
        size = len(x)  # the shortest sequences have ended
        last = [h[:size] for h in last]
        h = cell.step(x, last, None if scales is None else scales[t], None if mask is None else mask[:size])
        outputs.append(h)
        last = [h, *last[:-1]] if cell.input_gate is not None else [h]
    return torch.cat(outputs)


@untraced
def run_engine(cell: CellBase, inputs: Inputs) -> Tensor:
    """Run a cell by the fastest engine available."""
    data, packing, hidden, states, past, mask = inputs
    program, dtype = cell.program(), product_dtype(cell.weight_hidden)
    engine = ENGINES[dispatch.engine_for(program.plan.highway, cell.weight_hidden, dtype)]
    sources = {"hidden": hidden, "weight_hidden": cell.weight_hidden, "weight_nodes": cell.weight_nodes}
    if program.mixing is not None:
        sources["mixing"] = program.mixing
    if cell.state_gate is not None:
        assert past is not None
        gate = cell.state_gate
        scale = state_gate_scale(gate.program(), gate.weight_entry, gate.weight_nodes, past, packing)
        sources["hidden_scale"] = scale  # [S, H]
    input_gate = None
    if cell.input_gate is None:
        sources["projected"] = product(data, cell.weight_input)  # [S, W]
    else:
        gate = cell.input_gate
        input_gate, mixing = gate.program()
        sources |= {"data": data, "past": states, "weight_input": cell.weight_input}
        sources |= {"weight_entry": gate.weight_entry, "weight_gate": gate.weight_nodes}
        if mixing is not None:
            sources["entry_mixing"], sources["gate_mixing"] = mixing
    recurrence = Recurrence(
        cell=program.plan,
        gate=input_gate,
        sizes=packing.sizes,
        input_size=cell.input_size,
        hidden_size=cell.hidden_size,
        product=dtype,
        mask=mask,
        normalisation=program.normalisation,
    )
    return engine(recurrence, sources)


def draw_mask(probability: float, like: Tensor, *shape: int) -> Tensor | None:
    """Draw a dropout mask of a shape, for a tensor `like` this; return None if the probability is 0."""
    return like.new_empty(shape).bernoulli_(1 - probability).div_(1 - probability) if probability else None
