"""Time and memory of searched cells, next to `nn.LSTM` and to the matrix products that they cannot do without.

    python -m benchmarks.speed.recurrent_speed --out FILE              # everything: a quarter of an hour on 2 cores
    python -m benchmarks.speed.recurrent_speed --part cases --mode training --sizes 32x35x256 --genotypes i-darts-ptb
    python -m benchmarks.speed.recurrent_speed --table FILE [FILE ...]    # the tables again, without measuring

`cases`: in each repeat these run once, in an order drawn anew, and ratios are taken within a repeat, so that a machine
that speeds up or slows down favours none; a case has both precisions in one repeat.

    fast           `SearchedRNN` with FLAIR_NAS_KERNELS=auto
    columns        the same module with FLAIR_NAS_KERNELS=columns, on PyTorch's operators
    lstm           `nn.LSTM`
    floor          the matrix products of the searched cell alone, in library calls (`product_floor.py`)
    without gates  the cell of an ESS genotype without its gates, fast
    (un)gated carry    with its state gate on or off what the cell carries on, fast

Training is forward and backward, with the gradients of all weights and of the input; bfloat16 is autocast. Sizes are
BxTxH, or BxTxDxH with another input size; T = wnut is a packed batch of sentences as long as tweets. Layers are
genotypes, or gru, sru, mingru, minlstm, which have no floor. Tables show median milliseconds, and ratios with their
quartiles.
`growth`: one genotype over T and B, on the most threads. `memory`: what three training steps add to the peak of a fresh
process.

JSON lines are added to --out as soon as they are there.
"""

import argparse
import dataclasses
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from benchmarks.json_lines import processor
from benchmarks.speed import product_floor
from flair_nas import Genotype, ParallelRNN, SearchedRNN, load_genotype
from flair_nas.cli.version import describe
from flair_nas.genotype import CARRIES
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.nn.recurrent_layer import KINDS

MODES = ("training", "inference")
SIZES = ("32x35x256", "32x35x512", "64x35x850", "1x20x256", "32xwnutx256")
NAMES = ("darts-v2", "i-darts-ptb", "ess-ptb")
LEFT_OUT = ("64x35x850", "darts-v2")  # unless asked for: slow, and the arithmetic is that of i-darts-ptb
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FILES = Path(__file__).parents[1] / "genotypes"  # of those that are not bundled
GROWN, GROWN_SIZE = "i-darts-ptb", 256
GROWTH = [f"32x{steps}x{GROWN_SIZE}" for steps in (10, 35, 70, 140, 500)]
GROWTH += [f"{batch}x35x{GROWN_SIZE}" for batch in (1, 8, 32, 64, 256)]
MEMORY_NAMES, MEMORY_SIZES = ("lstm", "i-darts-ptb", "ess-ptb"), ("32x35x512", "64x35x850")
RATIOS = (
    *("fast/lstm", "fast/floor", "columns/lstm", "columns/fast", "float32/bfloat16", "fast/without gates"),
    "ungated carry/gated carry",
)

# --- layers ---


def genotype_of(name: str) -> Genotype:
    """The genotype of a file next to this one, or of a layer spec, such as tanh0,recurrence=elementwise."""
    file = FILES / f"{name}.json"
    return load_genotype(file) if file.exists() else parse_layer_spec(name)[0]


def make_layer(name: str, size: str) -> nn.Module:
    """A layer by the name of a genotype, or gru, lstm, mingru, minlstm or sru."""
    widths = input_size(size), batch_sizes(size)[1]
    if name in ("lstm", "gru"):
        return getattr(nn, name.upper())(*widths)
    return ParallelRNN(*widths, name) if name in KINDS else SearchedRNN(*widths, genotype_of(name))


def input_size(size: str) -> int:
    """D of a size BxTxH, where it is H, or BxTxDxH."""
    return int(size.split("x")[2])


def batch_sizes(size: str) -> tuple[list[int], int]:
    """The number of sequences at each step, and H."""
    batch, steps, *_, hidden = size.split("x")
    if steps != "wnut":
        return [int(batch)] * int(steps), int(hidden)
    generator = random.Random(5)  # 32 of them: 6 to 50 words, 17.5 in the mean
    lengths = [min(max(round(generator.lognormvariate(2.8, 0.5)), 4), 50) for _ in range(int(batch))]
    return [sum(length > step for length in lengths) for step in range(max(lengths))], int(hidden)


class Step:
    """One step of a layer, training or inference, with its input of a size BxTxH."""

    def __init__(self, module: nn.Module, size: str, training: bool, precision: str, kernels: str = "auto") -> None:
        sizes, hidden = batch_sizes(size)
        self.module, self.training, self.kernels = module.train(training), training, kernels
        self.packed = torch.tensor(sizes) if sizes[-1] < sizes[0] else None
        shape = (sum(sizes),) if self.packed is not None else (len(sizes), sizes[0])
        self.input = torch.randn(*shape, input_size(size), requires_grad=training)
        self.direction = torch.randn(*shape, hidden)  # the gradient of the output
        self.autocast = partial(torch.autocast, "cpu", torch.bfloat16, enabled=precision == "bfloat16")

    def __call__(self) -> float:
        """Runs it; the seconds that it took."""
        os.environ["FLAIR_NAS_KERNELS"] = self.kernels
        start = time.perf_counter()
        with torch.set_grad_enabled(self.training), self.autocast():
            output = self.module(self.input if self.packed is None else PackedSequence(self.input, self.packed))[0]
        if self.training:
            output = output if isinstance(output, Tensor) else output[0]
            output.backward(self.direction.to(output.dtype))  # nn.LSTM gives bfloat16 in autocast
        passed = time.perf_counter() - start
        self.module.zero_grad()
        self.input.grad = None
        return passed


def floor_of(genotype: Genotype, size: str, training: bool, precision: str) -> list[product_floor.Call]:
    """The products of a layer; sees to it that they are as many as its equations have."""
    sizes, hidden = batch_sizes(size)
    plan = product_floor.plan_of(genotype, input_size(size), hidden)
    calls = product_floor.build(plan, sizes, training, PRECISIONS[precision])
    expected = product_floor.multiply_adds(genotype, input_size(size), hidden) * sum(sizes) * (3 if training else 1)
    if (found := sum(map(product_floor.multiply_adds_of, calls))) != expected:
        raise AssertionError(f"the floor does {found:,} multiply-adds, the equations have {expected:,}")
    return calls


# --- measuring ---


def in_turn(steps: Mapping[Any, Callable[[], float]], repeats: int, budget: float) -> dict[Any, list[float]]:
    """Milliseconds of each in every repeat: as many as there is time for, but at least five."""
    for step in steps.values():  # to warm up
        if step() < 0.5:
            step()
    found: dict[Any, list[float]] = {key: [] for key in steps}
    order, end, count = [*steps], time.perf_counter() + budget, 0
    while count < min(5, repeats) or (count < repeats and time.perf_counter() < end):
        random.shuffle(order)
        for key in order:
            found[key].append(1000 * steps[key]())
        count += 1
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile of the ratios within each repeat."""
    ratios = sorted(a / b for a, b in zip(above, below))
    return [ratios[len(ratios) // 4], statistics.median(ratios), ratios[-1 - len(ratios) // 4]]


def measure_case(mode: str, size: str, name: str, arguments: argparse.Namespace) -> list[dict]:
    """A row per precision."""
    training, widths = mode == "training", (input_size(size), batch_sizes(size)[1])
    genotype = None if name in ("gru", *KINDS) else genotype_of(name)
    gated = genotype is not None and (genotype.state_gate is not None or genotype.input_gate is not None)
    layer, lstm = make_layer(name, size), make_layer("lstm", size)
    steps: dict[tuple[str, str], Callable[[], float]] = {}
    for precision in arguments.precision:
        step = partial(Step, size=size, training=training, precision=precision)
        steps[precision, "fast"] = step(layer)
        steps[precision, "lstm"] = step(lstm)
        if genotype is None:
            continue
        steps[precision, "columns"] = step(layer, kernels="columns")
        steps[precision, "floor"] = partial(product_floor.seconds, floor_of(genotype, size, training, precision))
        if gated:
            ungated = dataclasses.replace(genotype, state_gate=None, input_gate=None)
            steps[precision, "without gates"] = step(SearchedRNN(*widths, ungated))
        for carry in CARRIES if genotype.state_gate is not None else ():
            steps[precision, f"{carry} carry"] = step(SearchedRNN(*widths, dataclasses.replace(genotype, carry=carry)))
    found = in_turn(steps, arguments.repeats, arguments.seconds)
    rows = []
    for precision in arguments.precision:
        own = {layer: times for (other, layer), times in found.items() if other == precision}
        pairs = [pair.split("/") for pair in RATIOS if set(pair.split("/")) <= own.keys()]
        ratios = {f"{above}/{below}": ratio(own[above], own[below]) for above, below in pairs}
        if precision == "bfloat16" and "float32" in arguments.precision:
            ratios["float32/bfloat16"] = ratio(found["float32", "fast"], own["fast"])
        rows.append(
            {
                "mode": mode,
                "threads": torch.get_num_threads(),
                "precision": precision,
                "size": size,
                "genotype": name,
                "ms": {layer: statistics.median(times) for layer, times in own.items()},
                "ratios": ratios,
                "repeats": len(own["fast"]),
            }
        )
    return rows


def measure_growth(size: str, arguments: argparse.Namespace) -> list[dict]:
    """The row of one size."""
    searched = SearchedRNN(GROWN_SIZE, GROWN_SIZE, genotype_of(GROWN))
    step = partial(Step, size=size, training=True, precision="float32")
    steps = {"fast": step(searched), "columns": step(searched, kernels="columns")}
    steps["lstm"] = step(nn.LSTM(GROWN_SIZE, GROWN_SIZE))
    found = in_turn(steps, arguments.repeats, arguments.seconds)
    ratios = {pair: ratio(*(found[layer] for layer in pair.split("/"))) for pair in ("fast/lstm", "columns/fast")}
    medians = {layer: statistics.median(times) for layer, times in found.items()}
    return [{"threads": torch.get_num_threads(), "size": size, "genotype": GROWN, "ms": medians, "ratios": ratios}]


def measure_memory(size: str, name: str, kernels: str, precision: str, threads: int) -> list[dict]:
    """The row of one fresh process."""
    flags = ["--memory-of", name, size, precision, "--threads", str(threads)]
    environment = {**os.environ, "FLAIR_NAS_KERNELS": kernels}
    output = subprocess.run(
        [sys.executable, "-m", __spec__.name, *flags], stdout=subprocess.PIPE, check=True, env=environment
    )
    row = {"precision": precision, "size": size, "genotype": name, "kernels": kernels, "threads": threads}
    return [{**row, "peak_mb": float(output.stdout)}]


def peak_memory(name: str, size: str, precision: str) -> float:
    """MB (10^6 bytes) that training steps add to a fresh process' peak; run in a process of its own."""

    kernels = os.environ["FLAIR_NAS_KERNELS"]
    Step(make_layer(name, "2x2x8"), "2x2x8", True, precision, kernels)()  # the libraries' own buffers
    step = Step(make_layer(name, size), size, True, precision, kernels)
    before = forget_peak()
    for _ in range(3):
        step()
    return memory("VmHWM") - before


def forget_peak() -> float:
    """The memory that this process holds now, in MB (10^6 bytes); its peak, of importing torch, begins anew here."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> float:
    """A figure of this process in MB (10^6 bytes), as Linux gives it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6


def measure_threads(threads: Sequence[int]) -> list[dict]:
    """Milliseconds of one large product on so many threads, whether PyTorch honours the number; what `auto` means."""
    matrix = torch.randn(1536, 1536)
    calls = [partial(torch.mm, matrix, matrix, out=torch.empty_like(matrix))]
    best = {}
    for count in threads:
        torch.set_num_threads(count)
        best[count] = 1000 * min(product_floor.seconds(calls) for _ in range(5))
    return [{"mm_ms": best, "setup": describe()}]


# --- tables ---


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints one, if it has rows."""
    if rows:
        print(f"\n{title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
        print("\n".join(f"| {' | '.join(row)} |" for row in rows), flush=True)


def cell(value: float | Sequence[float] | None) -> str:
    """Milliseconds or megabytes; or a ratio with its quartiles; or nothing."""
    if value is None:
        return "-"
    if isinstance(value, (int, float)):
        return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    low, median, high = value
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def print_tables(rows: Sequence[dict]) -> None:
    """All tables that the rows fill; of two rows of one case the later counts."""
    parts: dict[str, dict[tuple, dict]] = defaultdict(dict)
    for row in rows:
        key = tuple(row.get(name) for name in ("mode", "threads", "precision", "size", "genotype", "kernels"))
        parts[row["part"]][key] = row
    cases, layers = parts["cases"].values(), ("fast", "columns", "lstm", "floor")
    for mode, threads in itertools.product(MODES, sorted({row["threads"] for row in cases})):
        lines = [
            [row["precision"], row["size"], row["genotype"], *(cell(row["ms"].get(layer)) for layer in layers)]
            + [cell(row["ratios"].get(pair)) for pair in RATIOS]
            for row in cases
            if (row["mode"], row["threads"]) == (mode, threads)
        ]
        header = ["precision", "B×T×H", "layer", *(f"{layer} ms" for layer in layers), *RATIOS]
        table(f"{mode}, {threads} thread{'s' * (threads > 1)}", header, lines)
    lines = []
    for row in parts["growth"].values():
        tokens = sum(batch_sizes(row["size"])[0])
        times = [cell(row["ms"][layer]) for layer in ("fast", "columns", "lstm")]
        micro = cell(1000 * row["ms"]["fast"] / tokens)
        lines.append([str(row["threads"]), row["size"], *times, micro, *map(cell, row["ratios"].values())])
    header = ["threads", "B×T×H", "fast ms", "columns ms", "lstm ms", "fast µs a token", "fast/lstm", "columns/fast"]
    table(f"growth: training, {GROWN}, float32", header, lines)
    peaks = parts["memory"]
    lines = []
    for row in peaks.values():
        lstm = peaks.get((None, row["threads"], row["precision"], row["size"], "lstm", "auto"))
        times_lstm = cell(row["peak_mb"] / lstm["peak_mb"] if lstm else None)
        name = row["genotype"] if row["genotype"] == "lstm" else f"{row['genotype']}, {row['kernels']}"
        lines.append([row["precision"], row["size"], name, cell(row["peak_mb"]), times_lstm])
    table("peak memory of training steps", ["precision", "B×T×H", "layer", "MB", "× lstm"], lines)


# --- the command ---


def measure(arguments: argparse.Namespace) -> list[dict]:
    """All rows that were asked for; each is written as soon as it is there."""
    rows: list[dict] = []
    begin = time.perf_counter()

    def add(part: str, *labels: Any, found: Callable[[], list[dict]]) -> None:
        print(f"{time.perf_counter() - begin:6.0f} s", part, *labels, file=sys.stderr, flush=True)
        new = [{"part": part, **row, "torch": torch.__version__, "processor": processor()} for row in found()]
        rows.extend(new)
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in new)

    def wanted(part: str) -> bool:
        return arguments.part in (part, "all")

    if wanted("memory"):
        names = ("lstm", *arguments.genotypes) if arguments.genotypes else MEMORY_NAMES
        for precision, size, name in itertools.product(arguments.precision, MEMORY_SIZES, names):
            for kernels in ("auto", "columns") if name != "lstm" else ("auto",):
                case = size, name, kernels, precision, max(arguments.threads)
                add("memory", *case, found=partial(measure_memory, *case))
    add("threads", found=partial(measure_threads, arguments.threads))
    print(*rows[-1]["setup"], f"ms of one large product: {rows[-1]['mm_ms']}", sep="\n", file=sys.stderr)
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        if wanted("cases"):
            for mode, size, name in itertools.product(arguments.mode, arguments.sizes, arguments.genotypes or NAMES):
                if arguments.genotypes or (size, name) != LEFT_OUT:
                    add("cases", threads, mode, size, name, found=partial(measure_case, mode, size, name, arguments))
    if wanted("growth"):
        torch.set_num_threads(max(arguments.threads))
        for size in dict.fromkeys(GROWTH):
            add("growth", size, found=partial(measure_growth, size, arguments))
    return rows


def main() -> None:
    """Measures what was asked for, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("cases", "growth", "memory", "all"), default="all")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=MODES, help="of cases")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="BxTxH", help="of cases")
    parser.add_argument("--genotypes", nargs="+", metavar="NAME", help="of cases, memory")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=[*PRECISIONS], help="of cases, memory")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=25, help="at most")
    parser.add_argument("--seconds", type=float, default=2, help="a case's; five repeats run even if they take longer")
    parser.add_argument("--out", metavar="FILE", help="JSON lines are added to it")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print the tables of such files; measure nothing")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.precision = product_floor.runnable(arguments.precision)
    if arguments.table:
        texts = [Path(file).read_text(encoding="utf-8") for file in arguments.table]
        print_tables([json.loads(line) for text in texts for line in text.splitlines()])
    elif arguments.memory_of:
        torch.set_num_threads(arguments.threads[0])
        print(peak_memory(*arguments.memory_of))
    else:
        print_tables(measure(arguments))


if __name__ == "__main__":
    main()
