"""Time and memory of the supernet next to straightforward loops and its bare products, and where an epoch goes.

    python -m benchmarks.speed.search_speed pass [--threads 2] [--batch 64] [--history 0] [--precision float32] \\
        [--out FILE]
    python -m benchmarks.speed.search_speed epoch --text DIR [--threads 2] [--precision float32] [--out FILE]

`pass`: one training pass (forward; backward to all weights and the input), T = 35, H = D = 300, 8 nodes, of

    supernet                 `CellSupernet` with FLAIR_NAS_KERNELS=auto
    supernet, columns        the same with FLAIR_NAS_KERNELS=columns, on PyTorch's operators
    edges                    the equations as they stand, in plain autograd: for each node, each edge, each operation
    stacked                  as the code of DARTS goes about it: for each node one product of all earlier states, then
                             each operation
    floor                    the supernet's matrix products alone, in library calls (`product_floor.py`)

That the first four give the same output and gradients is checked first, in float64. Each repeat runs all of them in
an order drawn anew, and ratios are taken within a repeat. Peak memory is that of a fresh process in two passes, over
what it held before.

`epoch`: steps of a search with the default settings (I-DARTS, first order, H = 300, batch 256, here always 35 steps a
segment), first as they are, then under torch.profiler, which gives each row its share of their seconds. Peak memory is
that of a fresh process, in all. FLAIR_NAS_KERNELS=columns before the command measures that engine.

JSON lines are added to --out, tables go to standard output.
"""

import argparse
import copy
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.json_lines import processor
from benchmarks.speed import product_floor
from benchmarks.speed.recurrent_speed import PRECISIONS, cell, forget_peak, in_turn, memory, ratio
from flair_nas.cli.version import describe
from flair_nas.nn.kernels.elementwise import FUNCTIONS
from flair_nas.search import bilevel
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives import text as text_objective
from flair_nas.search.objectives.text import TextObjective
from flair_nas.search.processes import make_accelerator
from flair_nas.search.strategies import gradient
from flair_nas.supernet import CellSupernet
from flair_nas.supernet import cell as supernet_cell
from flair_nas.supernet.gates import GateSupernet
from flair_nas.supernet.relaxation import relax

STEPS, SIZE, NODES = 35, 300, 8
KEPT = [(number, function) for number, (name, function) in enumerate(FUNCTIONS.items()) if name != "drop"]

# --- straightforward loops; vectors are rows, [B, H] ---


def run_loop(net: CellSupernet, input: Tensor, nodes: Callable) -> Tensor:
    """The output [T, B, H] of a supernet on [T, B, D]; `nodes` computes the states of a step from s_0."""
    shares = relax(net.arch, net.relaxation)
    weight_start = torch.cat([net.weight_input, net.weight_hidden])  # [D + H, 2H]
    zeros = input.new_zeros(input.shape[1], net.hidden_size)
    xs, hs, outputs = [torch.zeros_like(input[0])] * 100, [zeros] * 100, []
    hidden = zeros
    for x in input:
        state, hs = hidden, [hidden, *hs]
        if net.state_gate is not None:
            state = net.state_gate.apply_to(hidden, relaxed_gate(net.state_gate, xs))
            gated = net.input_gate.apply_to(x, relaxed_gate(net.input_gate, hs))
            xs, x = [x, *xs], gated
        gate, value = (torch.cat([x, state], 1) @ weight_start).chunk(2, 1)
        state = state + torch.sigmoid(gate) * (torch.tanh(value) - state)
        hidden = nodes(net, net.norm(state), shares)
        outputs.append(hidden)
    return torch.stack(outputs)


def nodes_by_edges(net: CellSupernet, start: Tensor, shares: Tensor) -> Tensor:
    """h_t: s_i is the sum over j and k of p_k (s_j + σ(c) (op_k(z) - s_j)), [c | z] = s_j W_i once per pair."""
    states, rows = [start], iter(shares)
    for weight in net.weight_nodes:
        total = torch.zeros_like(start)
        for state in states:
            gate, value = (state @ weight).chunk(2, 1)
            gate, share = torch.sigmoid(gate), next(rows)
            for k, function in KEPT:
                total = total + share[k] * (state + gate * (function(value) - state))
        states.append(net.norm(total))
    return torch.stack(states[1:]).mean(0)


def nodes_stacked(net: CellSupernet, start: Tensor, shares: Tensor) -> Tensor:
    """The same with one product per node i, of all s_j, j < i, and each operation on all of them."""
    states, row = start[None], 0  # [i, B, H]
    for weight in net.weight_nodes:
        count = len(states)
        gate, value = (states.flatten(0, 1) @ weight).unflatten(0, (count, -1)).chunk(2, 2)
        gate, total = torch.sigmoid(gate), torch.zeros_like(start)
        for k, function in KEPT:
            mixed = states + gate * (function(value) - states)
            total = total + (shares[row : row + count, k, None, None] * mixed).sum(0)
        states, row = torch.cat([states, net.norm(total)[None]]), row + count
    return states[1:].mean(0)


def relaxed_gate(gate: GateSupernet, past: list[Tensor]) -> Tensor:
    """f' or g' of ESS from the vectors before, latest first."""
    rows = iter(gate.mixing_weights())
    entry_shares = [next(rows) for _ in range(gate.history)]

    def mixed(pre: Tensor, share: Tensor) -> Tensor:
        return sum(share[k] * function(pre) for k, function in KEPT)

    states: list[Tensor] = []
    for number, share in enumerate(entry_shares):
        total = mixed(past[number] @ gate.weight_entry[number], share)
        for state in states:
            total = total + mixed(state @ gate.weight_nodes[number], next(rows))
        states.append(total)
    return torch.stack(states).mean(0)


LAYERS: dict[str, Callable[[CellSupernet, Tensor], Tensor]] = {
    "supernet": lambda net, input: net(input)[0],
    "supernet, columns": lambda net, input: net(input)[0],
    "edges": lambda net, input: run_loop(net, input, nodes_by_edges),
    "stacked": lambda net, input: run_loop(net, input, nodes_stacked),
}

# --- one training pass ---


def make(batch: int, relaxation: str, history: int, steps: int = STEPS) -> tuple[CellSupernet, Tensor]:
    """A supernet and an input."""
    torch.manual_seed(1)
    net = CellSupernet(SIZE, SIZE, NODES, relaxation, history=history)
    return net, torch.randn(steps, batch, SIZE, requires_grad=True)


def output_of(layer: str, net: CellSupernet, input: Tensor) -> Tensor:
    """What a layer gives, [T, B, H]."""
    os.environ["FLAIR_NAS_KERNELS"] = "columns" if layer == "supernet, columns" else "auto"
    return LAYERS[layer](net, input)


def run(layer: str, net: CellSupernet, input: Tensor, precision: str) -> float:
    """Seconds of one training pass."""
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        output = output_of(layer, net, input)
    output.sum().backward()
    seconds = time.perf_counter() - start
    net.zero_grad()
    input.grad = None
    return seconds


@cache
def check(batch: int, relaxation: str, history: int) -> None:
    """Sees to it that all give the same output and gradients, in float64, on a few steps."""
    net, input = make(batch, relaxation, history, steps=4)
    net.double()
    direction = torch.randn(4, batch, SIZE, dtype=torch.float64)
    found = {}
    for layer in LAYERS:
        own, data = copy.deepcopy(net), input.detach().double().requires_grad_()
        output = output_of(layer, own, data)
        (output * direction).sum().backward()
        found[layer] = {name: parameter.grad for name, parameter in own.named_parameters()}
        found[layer] |= {"output": output.detach(), "input": data.grad, "mean": own.norm.running_mean}
    for layer in LAYERS:
        for name, value in found[layer].items():
            torch.testing.assert_close(value, found["edges"][name], rtol=1e-6, atol=1e-8, msg=f"{layer}: {name}")


def floor_of(batch: int, history: int, precision: str) -> list[product_floor.Call]:
    """The products of a pass; sees to it that they are as many as the equations have."""
    plans = product_floor.supernet_plans(SIZE, SIZE, NODES, history)
    calls = product_floor.fastest_calls(plans, [batch] * STEPS, True, PRECISIONS[precision])
    # 2 H² for x, for h and for each pair of nodes; in both gates H² for each entry and each pair
    squares = 2 * (2 + NODES * (NODES + 1) // 2) + 2 * (history * (history + 1) // 2)
    expected = 3 * squares * SIZE**2 * STEPS * batch
    if (found := sum(map(product_floor.multiply_adds_of, calls))) != expected:
        raise AssertionError(f"the floor does {found:,} multiply-adds, the equations have {expected:,}")
    return calls


def times(batch: int, relaxation: str, history: int, precision: str, repeats: int) -> list[dict]:
    """Medians of all layers, with the supernet's ratios to each within each repeat."""
    check(batch, relaxation, history)
    net, input = make(batch, relaxation, history)
    steps = {layer: partial(run, layer, net, input, precision) for layer in LAYERS}
    steps["floor"] = partial(product_floor.seconds, floor_of(batch, history, precision))
    rows = []
    found = in_turn(steps, repeats, math.inf)
    for layer, milliseconds in found.items():
        row = {"case": "pass", "threads": torch.get_num_threads(), "batch": batch, "relaxation": relaxation}
        row |= {"history": history, "precision": precision, "layer": layer}
        row |= {"torch": torch.__version__, "processor": processor()}
        row |= {"seconds": statistics.median(milliseconds) / 1000, "repeats": len(milliseconds)}
        rows.append({**row, "supernet_ratio": ratio(found["supernet"], milliseconds)})
    return rows


def peak_memory(layer: str, batch: int, relaxation: str, history: int, precision: str) -> float:
    """MB (10^6 bytes) that passes add to a fresh process' peak; run in a process of its own."""
    run(layer, CellSupernet(8, 8, 2, relaxation, history=history), torch.randn(2, 2, 8), precision)  # libraries' own
    net, input = make(batch, relaxation, history)
    before = forget_peak()
    for _ in range(2):
        run(layer, net, input, precision)
    return memory("VmHWM") - before


def measure_passes(arguments: argparse.Namespace) -> list[dict]:
    """Times and memory of all cases; prints the table."""
    print(f"T = {STEPS}, H = D = {SIZE}, {NODES} nodes, {arguments.threads} threads, torch {torch.__version__}\n")
    print("| B | relaxation | m | precision | layer | median s | peak MB | supernet × it: s (quartiles) | peak |\n|"
          + " --- |" * 9)  # fmt: skip
    rows = []
    cases = itertools.product(arguments.batch, arguments.precision, arguments.history, arguments.relaxation)
    for batch, precision, history, relaxation in cases:
        # before the times, after which this process holds much memory
        case = [str(batch), relaxation, str(history), precision]
        peaks = {layer: float(in_process("pass", "--memory-of", layer, *case, threads=arguments.threads))
                 for layer in LAYERS}  # fmt: skip
        found = times(batch, relaxation, history, precision, arguments.repeats)
        for row in found:
            peak = peaks.get(row["layer"])  # the floor has none
            row["peak_mb"] = peak
            row["supernet_peak_ratio"] = peaks["supernet"] / peak if peak else None
            print(f"| {batch} | {relaxation} | {history} | {precision} | {row['layer']} | {row['seconds']:.3f} | "
                  f"{cell(peak)} | {cell(row['supernet_ratio'])} | {cell(row['supernet_peak_ratio'])} |",
                  flush=True)  # fmt: skip
        rows += found
    return rows


def in_process(*flags: str, threads: int) -> str:
    """What this file prints with these flags, in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, *flags, "--threads", str(threads)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


# --- where an epoch goes ---

ROWS = {
    "recurrence": "cell: recurrence, forward",
    "recurrence gradients": "cell: recurrence, backward",
    "weight gradients": "cell: gradients of weights, over all steps at once",
    "around": "cell: x W_x, weights and sequences laid out anew, both ways",
    "softmax": "softmax and cross-entropy, with their gradients",
    "embedding": "embedding, dropout around the cell, slowness",
    "descent": "adding up and clipping gradients, optimizers, MAD",
    "data": "data",
    "python": "Python, between operations",
}
PASSES = ("architecture", "weights")
DESCENT = ("aten::add_", "aten::zeros_like", "aten::div")  # where nothing says what they are part of
OF_CELL = ("Mm", "Clone", "T", "Slice", "Permute", "Unflatten", "Transpose")  # in the graph around the recurrence


def row_of(names: list[str]) -> str:
    """The row of an operation, from its name and those of what it runs in, innermost first."""

    def within(*parts: str) -> bool:
        return any(part in name for name in names for part in parts)

    if not names[0].startswith(("aten::", "flair_nas::")):  # the latter are calls of native kernels
        return "python"
    nodes = [name.split(": ")[1] for name in names if "evaluate_function" in name]  # of the graph, innermost first
    if within("CrossEntropy"):
        return "softmax"
    if nodes[-1:] in (["_SequenceBackward"], ["_NativeRecurrenceBackward"]):
        in_steps = len(nodes) > 1 or within("flair_nas::")  # the graph of the loop, or the native kernel
        return "recurrence gradients" if in_steps else "weight gradients"
    if within("_Sequence", "_NativeRecurrence", "flair_nas::recurrence"):
        return "recurrence"
    if within("cell") or any(node.startswith(f"{name}Backward") for node in nodes for name in OF_CELL):
        return "around"
    if within("data"):
        return "data"
    if not within("Embedding") and (within("descent", "Optimizer") or names[-1] in DESCENT):
        return "descent"
    return "embedding"


def recorded(label: str, function: Callable) -> Callable:
    """A function whose operations the profiler finds below a label."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with record_function(label):
            return function(*args, **kwargs)

    return wrapper


def make_search(text: str, precision: str) -> tuple[gradient.GradientStrategy, TextObjective]:
    """A search with the default settings, about to begin."""
    config = SearchConfig(text=text, device="cpu", precision=precision, vary_length=False)
    accelerator = make_accelerator(config.device, config.precision)
    objective = text_objective.build(config, text_objective.read(config), accelerator)
    objective.module.train()
    return gradient.GradientStrategy(objective, config, config.strategy), objective


def shares_of_rows(strategy: gradient.GradientStrategy, objective: TextObjective, steps: range) -> dict[tuple, float]:
    """Share of the time of a step, by row and pass."""
    for name in ("training_batch", "validation_batch"):
        setattr(objective, name, recorded("data", getattr(objective, name)))
    for module, name in (
        (bilevel, "check_finite"),
        (bilevel, "clip_gradients"),
        (strategy, "_deviations"),
    ):
        setattr(module, name, recorded("descent", getattr(module, name)))
    supernet_cell.run_cell = recorded("cell", supernet_cell.run_cell)
    spent: dict[tuple, float] = defaultdict(float)
    for step in steps:
        with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("step"):
            strategy.step(1, step)
        events = profiler.events()
        # the step of the architecture weights ends with their optimizer's
        ends = next(event.time_range.end for event in events if event.name.endswith("Adam.step"))
        for event in events:
            names, outer = [event.name], event.cpu_parent
            while outer is not None:
                names.append(outer.name)
                outer = outer.cpu_parent
            which = PASSES[event.time_range.start > ends]
            spent[row_of(names[:-1] or names), which] += event.self_cpu_time_total
    total = sum(spent.values())
    return {key: value / total for key, value in spent.items()}


def measure_epoch(arguments: argparse.Namespace) -> list[dict]:
    """Seconds, shares and memory; prints the tables."""
    found = []
    for precision in arguments.precision:
        strategy, objective = make_search(arguments.text, precision)
        seconds = []
        for step in range(arguments.repeats + 1):
            start, start_cpu = time.perf_counter(), time.process_time()
            strategy.step(1, step)
            seconds.append((time.perf_counter() - start, time.process_time() - start_cpu))
        clock, cpu = (statistics.median(column) for column in zip(*seconds[1:]))  # the first is there to warm up
        start = time.perf_counter()
        objective.evaluate()
        evaluation = time.perf_counter() - start
        objective.module.train()
        shares = shares_of_rows(strategy, objective, range(arguments.repeats + 1, arguments.repeats + 4))
        columns = (len(objective.streams["train"][0]) - 1) / objective.bptt  # the last segment is shorter
        output = in_process("epoch", "--text", arguments.text, "--precision", precision, "--memory-of",
                            threads=arguments.threads)  # fmt: skip
        found.append(
            {
                "case": "epoch",
                "threads": arguments.threads,
                "precision": precision,
                "seconds_per_step": clock,
                "cpu_seconds_per_step": cpu,
                "steps_per_epoch": columns,
                "evaluation_seconds": evaluation,
                "peak_mb": float(output),
                "shares": {f"{row}, {which}": share for (row, which), share in sorted(shares.items())},
                "types": len(objective.text.vocabulary),
                "kernels": describe(),
                "torch": torch.__version__,
                "processor": processor(),
            }
        )
        gigabytes, types = found[-1]["peak_mb"] / 1000, len(objective.text.vocabulary)
        lines = [
            f"One step, {precision}, {arguments.threads} threads, {types:,} types: {clock:.2f} s, {cpu:.2f} s of",
            f"processor time, peak memory {gigabytes:.2f} GB.",
            f"Epoch: {columns:.1f} steps and {evaluation:.1f} s of evaluation, {columns * clock + evaluation:.0f} s.",
            "The DARTS authors' code, patched to run on current PyTorch, takes 12 to 15 s and 8.3 GB for such a step",
            "on 2 cores (figures that were given, not measured here).",
        ]
        print("\n".join(lines) + "\n")
        print("| where | architecture, s a step | weights, s a step | share | s an epoch |\n|" + " --- |" * 5)
        for row, label in ROWS.items():
            parts = [shares.get((row, which), 0.0) for which in PASSES]
            print(f"| {label} | {parts[0] * clock:.3f} | {parts[1] * clock:.3f} | {sum(parts):.1%} | "
                  f"{sum(parts) * clock * columns:.1f} |")  # fmt: skip
        both = [sum(share for (_, which), share in shares.items() if which == name) for name in PASSES]
        print(f"| together | {both[0] * clock:.3f} | {both[1] * clock:.3f} | 100% | {clock * columns:.1f} |\n")
    return found


def peak_of_step(text: str, precision: str) -> float:
    """Peak memory of a process in two steps of a search, in all, in MB (10^6 bytes)."""
    strategy, _ = make_search(text, precision)
    forget_peak()
    for step in range(2):
        strategy.step(1, step)
    return memory("VmHWM")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("pass", "epoch"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256], help="pass: batch sizes")
    parser.add_argument("--history", type=int, nargs="+", default=[0, 3], help="pass: history lengths m of ESS gates")
    parser.add_argument("--relaxation", nargs="+", default=["i-darts"], help="pass: relaxations; darts costs the same")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=[*PRECISIONS])
    parser.add_argument("--text", help="epoch: folder with train and valid text")
    parser.add_argument("--out", help="file to which JSON lines are added")
    parser.add_argument("--memory-of", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.precision = product_floor.runnable(arguments.precision)
    torch.set_num_threads(arguments.threads)
    if arguments.part == "epoch" and not arguments.text:
        parser.error("epoch needs --text DIR")
    if arguments.memory_of is not None and arguments.part == "epoch":
        print(peak_of_step(arguments.text, arguments.precision[0]))
        return
    if arguments.memory_of is not None:
        layer, batch, relaxation, history, precision = arguments.memory_of
        print(peak_memory(layer, int(batch), relaxation, int(history), precision))
        return
    rows = measure_passes(arguments) if arguments.part == "pass" else measure_epoch(arguments)
    if arguments.out:
        with open(arguments.out, "a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
