"""Time and memory of the supernet next to straightforward loops, and where an epoch of a search goes.

    python benchmarks/search_speed.py pass [--threads 2] [--batch 64] [--history 0 3] [--precision float32] [--out FILE]
    python benchmarks/search_speed.py epoch --text DIR [--threads 2] [--precision float32] [--repeats 9] [--out FILE]

`pass`: one training pass (forward; backward to all weights and the input), T = 35, H = D = 300, 8 nodes, of

    supernet   `CellSupernet`
    edges      the equations as they stand, in plain autograd: for each node, each edge into it, each operation
    stacked    as the code of DARTS goes about it: for each node one product of all earlier states, then each operation

That the loops give the same output and gradients is checked first, in float64. Cases are interleaved and ratios are
taken within a repeat, by the clock and by the processor time of this process, which other processes disturb less
(with two threads, one that waits for the other counts, too). Peak memory is that of a fresh process in two passes, over
what it held before.

`epoch`: steps of a search with the default settings (I-DARTS, first order, H = 300, batch 256, here always 35 steps a
segment), first as they are, then under torch.profiler, which gives each row its share of their seconds. Peak memory is
that of a fresh process, in all.

JSON lines are added to --out, tables go to standard output.
"""

import argparse
import copy
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from flair_nas.operations import OPERATIONS
from flair_nas.search import weights
from flair_nas.search.build import build_objective, read_text
from flair_nas.search.config import SearchConfig
from flair_nas.search.objective import TextObjective
from flair_nas.search.processes import make_accelerator
from flair_nas.search.strategies import gradient
from flair_nas.supernet import CellSupernet
from flair_nas.supernet.gates import GateSupernet
from flair_nas.supernet.relaxation import relax

STEPS, SIZE, NODES = 35, 300, 8
KEPT = [(number, function) for number, (name, function) in enumerate(OPERATIONS.items()) if name != "drop"]

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
    rows = iter(gate.shares())
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
    "edges": lambda net, input: run_loop(net, input, nodes_by_edges),
    "stacked": lambda net, input: run_loop(net, input, nodes_stacked),
}

# --- one training pass ---


def make(batch: int, relaxation: str, history: int, steps: int = STEPS) -> tuple[CellSupernet, Tensor]:
    """A supernet and an input."""
    torch.manual_seed(1)
    net = CellSupernet(SIZE, SIZE, NODES, relaxation, history=history)
    return net, torch.randn(steps, batch, SIZE, requires_grad=True)


def run(layer: str, net: CellSupernet, input: Tensor, precision: str) -> tuple[float, float]:
    """Seconds of one training pass, by the clock and of processor time."""
    start, start_cpu = time.perf_counter(), time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        output = LAYERS[layer](net, input)
    output.sum().backward()
    seconds = time.perf_counter() - start, time.process_time() - start_cpu
    net.zero_grad()
    input.grad = None
    return seconds


def check(batch: int, relaxation: str, history: int) -> None:
    """Sees to it that all give the same output and gradients, in float64, on a few steps."""
    net, input = make(batch, relaxation, history, steps=4)
    net.double()
    direction = torch.randn(4, batch, SIZE, dtype=torch.float64)
    found = {}
    for layer, function in LAYERS.items():
        own, data = copy.deepcopy(net), input.detach().double().requires_grad_()
        output = function(own, data)
        (output * direction).sum().backward()
        found[layer] = {name: parameter.grad for name, parameter in own.named_parameters()}
        found[layer] |= {"output": output.detach(), "input": data.grad, "mean": own.norm.running_mean}
    for layer in LAYERS:
        for name, value in found[layer].items():
            torch.testing.assert_close(value, found["supernet"][name], rtol=1e-6, atol=1e-8, msg=f"{layer}: {name}")


def times(batch: int, relaxation: str, history: int, precision: str, repeats: int) -> list[dict]:
    """Medians of all layers, with the supernet's ratios to each loop within each repeat."""
    check(batch, relaxation, history)
    net, input = make(batch, relaxation, history)
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(repeats + 1):
        for layer in LAYERS:
            seconds[layer].append(run(layer, net, input, precision))
    rows = []
    for layer, all_pairs in seconds.items():
        pairs = all_pairs[1:]  # the first is there to warm up
        clock, cpu = (statistics.median(column) for column in zip(*pairs))
        row = {"case": "pass", "threads": torch.get_num_threads(), "batch": batch, "relaxation": relaxation}
        row |= {"history": history, "precision": precision, "layer": layer, "torch": torch.__version__}
        row |= {"seconds": clock, "cpu_seconds": cpu}
        for name, place in (("ratio", 0), ("cpu_ratio", 1)):
            ratios = sorted(ours[place] / own[place] for ours, own in zip(seconds["supernet"][1:], pairs))
            row[f"supernet_{name}"] = statistics.median(ratios)
            row[f"supernet_{name}_quartiles"] = [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]]
        rows.append(row)
    return rows


def peak_memory(layer: str, batch: int, relaxation: str, history: int, precision: str) -> float:
    """MB (10^6 bytes) that passes add to a fresh process' peak; run in a process of its own."""
    run(layer, CellSupernet(8, 8, 2, relaxation, history=history), torch.randn(2, 2, 8), precision)  # libraries' own
    net, input = make(batch, relaxation, history)
    before = forget_peak()
    for _ in range(2):
        run(layer, net, input, precision)
    return memory("VmHWM") - before


def forget_peak() -> float:
    """The memory that this process holds now, in MB (10^6 bytes); its peak begins anew from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> float:
    """A figure of this process in MB (10^6 bytes), as Linux gives it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6


def measure_passes(arguments: argparse.Namespace) -> list[dict]:
    """Times and memory of all cases; prints the table."""
    print(f"T = {STEPS}, H = D = {SIZE}, {NODES} nodes, {arguments.threads} threads, torch {torch.__version__}\n")
    print("| B | relaxation | m | precision | layer | median s | CPU s | peak MB | supernet × it: s (quartiles) "
          "| CPU s | peak |\n|" + " --- |" * 11)  # fmt: skip
    rows = []
    cases = itertools.product(arguments.batch, arguments.precision, arguments.history, arguments.relaxation)
    for batch, precision, history, relaxation in cases:
        # before the times, after which this process holds much memory
        case = [str(batch), relaxation, str(history), precision]
        peaks = [in_process("pass", "--memory-of", layer, *case, threads=arguments.threads) for layer in LAYERS]
        found = times(batch, relaxation, history, precision, arguments.repeats)
        for row, peak in zip(found, map(float, peaks)):
            row["peak_mb"] = peak
            row["supernet_peak_ratio"] = float(peaks[0]) / peak
            low, high = row["supernet_ratio_quartiles"]
            print(f"| {batch} | {relaxation} | {history} | {precision} | {row['layer']} | {row['seconds']:.2f} | "
                  f"{row['cpu_seconds']:.2f} | {row['peak_mb']:.0f} | {row['supernet_ratio']:.2f} ({low:.2f} to "
                  f"{high:.2f}) | {row['supernet_cpu_ratio']:.2f} | {row['supernet_peak_ratio']:.2f} |",
                  flush=True)  # fmt: skip
        rows += found
    return rows


def in_process(*flags: str, threads: int) -> str:
    """What this file prints with these flags, in a process of its own."""
    command = [sys.executable, __file__, *flags, "--threads", str(threads)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


# --- where an epoch goes ---

ROWS = {
    "products": "cell: matrix products, forward",
    "state gradients": "cell: matrix products, gradients of states",
    "weight gradients": "cell: matrix products, gradients of weights",
    "mixtures": "cell: mixtures of the operations, forward",
    "mixture gradients": "cell: mixtures of the operations, backward",
    "normalisation": "cell: batch normalisation, both ways",
    "cell": "cell: masks, s_0, sums over edges, forward",
    "cell gradients": "cell: masks, s_0, sums over edges, backward",
    "copies": "cell: weights and sequences transposed, both ways",
    "softmax": "softmax and cross-entropy, with their gradients",
    "embedding": "embedding, dropout around the cell, slowness",
    "descent": "adding up and clipping gradients, optimizers, MAD",
    "data": "data",
    "python": "Python, between operations",
}
PASSES = ("architecture", "weights")


def row_of(names: list[str]) -> str:
    """The row of an operation, from its name and those of what it runs in, innermost first."""

    def within(*parts: str) -> bool:
        return any(part in name for name in names for part in parts)

    if not names[0].startswith("aten::"):
        return "python"
    nodes = [name.split(": ")[1] for name in names if "evaluate_function" in name]  # of the graph, innermost first
    in_recurrence = nodes[-1:] == ["_SequenceBackward"]
    if within("_MeanCrossEntropy"):
        return "softmax"
    if within("Mixture"):
        return "mixture gradients" if nodes else "mixtures"
    if within("batch_norm", "BatchNorm"):
        return "normalisation"
    if within("aten::mm"):
        right_in = nodes[:1] == ["_SequenceBackward"]  # all time steps in one product
        return "products" if not nodes else "weight gradients" if right_in else "state gradients"
    if in_recurrence:
        return "cell gradients" if len(nodes) > 1 else "weight gradients"  # the latter: joining all time steps
    if within("_Sequence"):
        return "cell"
    if within("copies", "CloneBackward", "TBackward", "SliceBackward", "PermuteBackward", "UnflattenBackward"):
        return "copies"
    if within("Embedding"):
        return "embedding"
    if within("data"):
        return "data"
    if within("descent", "Optimizer") or names[-1] in ("aten::add_", "aten::zeros_like", "aten::div"):
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
    objective = build_objective(config, read_text(config), accelerator)
    objective.module.train()
    return gradient.GradientStrategy(objective, config, None), objective


def shares_of_rows(strategy: gradient.GradientStrategy, objective: TextObjective, steps: range) -> dict[tuple, float]:
    """Share of the time of a step, by row and pass."""
    for name in ("training_batch", "validation_batch"):
        setattr(objective, name, recorded("data", getattr(objective, name)))
    for module, name in (
        (weights, "check_finite"),
        (weights, "clip_gradients"),
        (gradient, "check_finite"),
        (strategy, "deviations"),
    ):
        setattr(module, name, recorded("descent", getattr(module, name)))
    objective.supernet.weights = recorded("copies", objective.supernet.weights)
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
                "torch": torch.__version__,
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
    parser.add_argument("--batch", type=int, nargs="+", default=[64], help="pass: batch sizes")
    parser.add_argument("--history", type=int, nargs="+", default=[0, 3], help="pass: history lengths m of ESS gates")
    parser.add_argument("--relaxation", nargs="+", default=["darts", "i-darts"], help="pass: relaxations")
    parser.add_argument("--precision", nargs="+", default=["float32"], help="float32, bfloat16")
    parser.add_argument("--text", help="epoch: folder with train and valid text")
    parser.add_argument("--out", help="file to which JSON lines are added")
    parser.add_argument("--memory-of", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
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
