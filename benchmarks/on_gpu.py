"""What flair-nas does on a GPU, checked and measured in order of value, for as many minutes as there are.

    python benchmarks/on_gpu.py --minutes 25 --out DIR [--text PTB] [--tagging CORPUS --embeddings EMBEDDING ...]
    python benchmarks/on_gpu.py --minutes 2 --out DIR --device cpu --toy      # does it all run?
    python benchmarks/on_gpu.py --table --out DIR                             # what is there, as tables

`correct`: output and gradients of every engine, of second order too, against the equations in float64 on the CPU.
`layers`: a step of training and of inference of each engine, of `nn.LSTM` (cuDNN's) and of the layer's products alone
(in a CUDA graph, so that launching them costs nothing), in turn. `supernet`: the same for a search, with its memory.
`search`, `tagger`, `retrain`: the commands themselves, in folders that they go on in.

DIR/on_gpu.jsonl gets a line as soon as there is one; a case that has one is not done again, so pieces of ten minutes
add up. A case that fails has its error in its line, and the rest goes on. A case is begun if its guess fits into the
time that is left; a command that has run out of it is stopped, and goes on the next time.
"""

import argparse
import copy
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import product_floor
import torch
from json_lines import lines_in, put
from recurrent_speed import PRECISIONS, Step, batch_sizes, genotype_of, in_turn
from torch import Tensor, nn

from flair_nas import SearchedRNN
from flair_nas.cli.version import describe
from flair_nas.supernet import CellSupernet

ENGINES = ("plain", "columns", "triton", "graphs")
LAYERS = ("darts-v2", "i-darts-ptb", "ess-ptb")
SIZES = ("64x35x850", "32x35x256", "32x35x512", "32xwnutx256", "1x35x256")
TOY_SIZES = ("2x3x8", "1x3x8")
FILE = "on_gpu.jsonl"
_REPEATS = 25
_STOP = 20  # seconds that a command gets to write its checkpoint


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to measure.

    Args:
        part: which of the parts of above.
        name: of it, within its part.
        guess: seconds that it takes at least.
        work: gives its figures; its argument is the seconds that are left.
    """

    part: str
    name: str
    guess: float
    work: Callable[[float], dict[str, Any]]


# --- correct ---


def gradients(module: nn.Module, input: Tensor, lengths: list[int], kernels: str, second: bool) -> dict[str, Tensor]:
    """Output and gradients, by name; of the gradients' squares, if `second`."""
    os.environ["FLAIR_NAS_KERNELS"] = kernels
    data = input.detach().requires_grad_()
    packed = nn.utils.rnn.pack_padded_sequence(data, torch.tensor(lengths)) if lengths else data
    output = module(packed)[0]
    output = output if isinstance(output, Tensor) else output.data
    direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    sources = {"input": data, **dict(module.named_parameters())}
    found = torch.autograd.grad((output * direction).sum(), [*sources.values()], create_graph=second)
    if second:
        found = torch.autograd.grad(sum(g.square().sum() for g in found), [*sources.values()], allow_unused=True)
    known = {name: gradient for name, gradient in zip(sources, found) if gradient is not None}
    return {"output": output.detach()} | known


def check(make: Callable[[], nn.Module], ragged: bool, engine: str, second: bool, device: torch.device) -> dict:
    """How far an engine is from float64 on the CPU: the worst error, relative to the largest entry of that tensor."""
    torch.manual_seed(1)
    module = make().train(not second)
    input = torch.randn(9, 6, 24)
    lengths = [9, 7, 7, 4, 2, 1] if ragged else []
    wanted = gradients(copy.deepcopy(module).double(), input.double(), lengths, "plain", second)
    found = gradients(module.to(device), input.to(device), lengths, engine, second)
    errors = {
        name: float((found[name].cpu().double() - tensor).abs().max() / tensor.abs().max().clamp_min(1e-9))
        for name, tensor in wanted.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    return {"worst": errors[worst], "of": worst, "ok": errors[worst] < (1e-3 if second else 1e-4)}


def checks(device: torch.device, engines: list[str]) -> list[Case]:
    """Every engine with layers, gates, ragged batches and supernets; second order by the equations."""
    made: dict[str, Callable[[], nn.Module]] = {
        name: partial(SearchedRNN, 24, 32, genotype_of(name), num_layers=2, bidirectional=True) for name in LAYERS
    }
    made |= {
        f"supernet, m = {history}": partial(CellSupernet, 24, 32, 4, "i-darts", history=history) for history in (0, 2)
    }
    cases = []
    for engine in engines:
        for name, make in made.items():
            for ragged in (False, True) if "supernet" not in name else (False,):
                work = partial(check, make, ragged, engine, False, device)
                cases.append(("ragged, " * ragged + f"{name}, {engine}", work))
    cases += [(f"second order, {name}", partial(check, made[name], False, "plain", True, device)) for name in made]
    return [Case("correct", name, 5, lambda _, work=work: work()) for name, work in cases]


# --- layers and supernets ---


def bare_products(genotype: Any, size: str, training: bool, dtype: torch.dtype, device: torch.device) -> Callable:
    """The matrix products of a layer; on a GPU as one graph, which is launched at once."""
    sizes, hidden = batch_sizes(size)
    plan = product_floor.plan_of(genotype, hidden, hidden)
    weights: dict[tuple[int, int], Tensor] = {}

    def multiply(rows: int, inner: int, columns: int) -> Callable[[], Tensor]:
        for shape in ((rows, inner), (inner, columns)):
            if shape not in weights:
                weights[shape] = torch.rand(shape, dtype=dtype, device=device)
        return partial(torch.mm, weights[rows, inner], weights[inner, columns])

    calls = [
        multiply(product.rows, product.inner, product.copies * count)
        for products, count in product_floor.passes(plan, sizes, training)
        for product in products
    ]
    if training:
        whole = sum(sizes)
        calls += [multiply(p.rows, p.copies * whole, p.inner) for p in product_floor.weight_products(plan)]
    run = partial(product_floor.run, calls)
    if device.type == "cpu":
        return run
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of it, until the GPU is done."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def peak_mb(work: Callable[[], Any], device: torch.device) -> float | None:
    """MB (10^6 bytes) that it adds to what a GPU holds; None on a CPU."""
    if device.type == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    return (torch.cuda.max_memory_allocated(device) - before) / 1e6


def medians(steps: Mapping[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    """Milliseconds of each, run in turn."""
    return {name: statistics.median(times) for name, times in in_turn(steps, _REPEATS, seconds).items()}


def layer_case(
    name: str, size: str, mode: str, precision: str, device: torch.device, engines: list[str], seconds: float
) -> dict:
    """A step of one layer with each engine, of cuDNN's LSTM, and its products alone."""
    training, hidden, genotype = mode == "training", batch_sizes(size)[1], genotype_of(name)
    step = partial(Step, size=size, training=training, precision=precision, device=device)
    searched, lstm = SearchedRNN(hidden, hidden, genotype).to(device), nn.LSTM(hidden, hidden).to(device)
    works: dict[str, Callable[[], Any]] = {engine: step(searched, kernels=engine) for engine in engines}
    works["lstm"] = step(lstm)
    works["products"] = bare_products(genotype, size, training, PRECISIONS[precision], device)
    found = medians({key: partial(timed, work, device) for key, work in works.items()}, min(seconds / 4, 4))
    memory = {key: peak_mb(work, device) for key, work in works.items() if key != "products"}
    return {"ms": found, "mb": memory}


def supernet_case(
    batch: int, history: int, toy: bool, precision: str, device: torch.device, engines: list[str], seconds: float
) -> dict:
    """A training pass of a supernet with each engine."""
    steps, size = (3, 8) if toy else (35, 300)
    net = CellSupernet(size, size, 8, "i-darts", history=history).to(device)
    input = torch.randn(steps, batch, size, device=device, requires_grad=True)

    def run(engine: str) -> None:
        os.environ["FLAIR_NAS_KERNELS"] = engine
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            output = net(input)[0]
        output.float().sum().backward()
        net.zero_grad()
        input.grad = None

    found = medians({engine: partial(timed, partial(run, engine), device) for engine in engines}, min(seconds / 4, 8))
    return {"ms": found, "mb": {engine: peak_mb(partial(run, engine), device) for engine in engines}}


# --- commands ---


def command(verb: list[str], options: list[str], folder: Path, device: torch.device, left: float) -> dict[str, Any]:
    """Runs a command, or goes on with it in its folder, for so long; what it left there, and how long it ran now."""
    where = ["--resume", str(folder)] if (folder / "config.yaml").exists() else [*options, "--out", str(folder)]
    start = time.perf_counter()
    words = [*verb, "--quiet", "--device", str(device), *where]
    process = subprocess.Popen([sys.executable, "-m", "flair_nas", *words], stdout=subprocess.DEVNULL)
    try:
        process.wait(max(1.0, left - _STOP))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(2 * _STOP)
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, "rc": process.returncode}
    if (history := folder / "history.jsonl").exists():
        found["history"] = lines_in(history)
    for name in ("metrics", "genotype"):
        if (file := folder / f"{name}.json").exists():
            found[name] = json.loads(file.read_text(encoding="utf-8"))
    return found


def commands(arguments: argparse.Namespace) -> list[Case]:
    """Searches at the papers' settings, two taggers, and the retraining of a cell, which takes what is left."""
    text, small = ["--text", arguments.text or "demo"], ["--hidden-size", "8", "--epochs", "1"] * arguments.toy
    tags = ["--corpus", arguments.tagging or "demo", "--embeddings", *(arguments.embeddings or ["one-hot"])]
    tags += ["--data-root", arguments.data_root] if arguments.data_root else []
    found = [("search", preset, ["search"], ["--preset", preset, *text]) for preset in ("i-darts-ptb", "darts-ptb")]
    for rnn in ("lstm", "i-darts-ptb"):
        found.append(("tagger", rnn, ["tag", "train"], [*tags, "--rnn", rnn, "--epochs", "4"]))
    found.append(("retrain", "darts-v2", ["lm", "train"], ["--preset", "darts-ptb", "--rnn", "darts-v2", *text]))
    return [
        Case(
            part, name, 1 if arguments.toy else 60,
            partial(command, verb, [*options, *small], arguments.work / f"{part}-{name}", arguments.device),
        )
        for part, name, verb, options in found
    ]  # fmt: skip


# --- all of it ---


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """In order of value."""
    device, toy = arguments.device, arguments.toy
    engines = [engine for engine in ENGINES if device.type == "cuda" or engine not in ("triton", "graphs")]
    found = [Case("machine", "setup", 0, lambda _: machine(device)), *checks(device, engines)]
    for size in TOY_SIZES if toy else SIZES:
        for mode in ("training", "inference"):
            for precision in PRECISIONS:
                for name in LAYERS[1:] if size != SIZES[0] else LAYERS[1:2]:
                    work = partial(layer_case, name, size, mode, precision, device, engines)
                    found.append(Case("layers", f"{mode}, {size}, {name}, {precision}", 1 if toy else 25, work))
    for history in (0, 3):
        for precision in PRECISIONS:
            work = partial(supernet_case, 4 if toy else 256, history, toy, precision, device, engines)
            found.append(Case("supernet", f"m = {history}, {precision}", 1 if toy else 40, work))
    return found + commands(arguments)


def machine(device: torch.device) -> dict:
    """What it runs on."""
    found: dict[str, Any] = {"torch": torch.__version__, "setup": describe()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "capability": f"{properties.major}.{properties.minor}"}
        found |= {"memory_gb": properties.total_memory / 1e9, "cudnn": torch.backends.cudnn.version()}
    return found


def is_done(line: Mapping[str, Any]) -> bool:
    """Whether a case has its figures: it did not fail, and was not stopped."""
    return "error" not in line and line.get("rc", 0) == 0


def measure(arguments: argparse.Namespace) -> None:
    """Does what has no figures yet, in order, while there is time."""
    end = time.monotonic() + 60 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work or arguments.out / "runs"
    done = {(line["part"], line["case"]) for line in lines_of(arguments.out) if is_done(line)}
    for case in cases_of(arguments):
        left = end - time.monotonic()
        if (case.part, case.name) in done or (arguments.parts and case.part not in arguments.parts):
            continue
        if left < case.guess:
            print(f"no time for {case.part}, {case.name}", file=sys.stderr)
            continue
        started = time.perf_counter()
        try:
            found = case.work(left)
        except Exception as error:  # the rest is worth as much
            found = {"error": f"{type(error).__name__}: {error}"[:2000]}
        line = {"part": case.part, "case": case.name, "device": arguments.name} | found
        put(line | {"took": round(time.perf_counter() - started, 2)}, arguments.out / FILE)


def lines_of(out: Path) -> list[dict[str, Any]]:
    """What has been measured there."""
    return lines_in(out / FILE) if (out / FILE).exists() else []


def tables(out: Path) -> str:
    """The figures as tables; of two lines of one case the later counts."""
    lines = {(line["part"], line["case"]): line for line in lines_of(out)}.values()
    rows = ["| case | worst error | of | |", "| --- | --- | --- | --- |"]
    for line in lines:
        if line["part"] == "correct":
            cells = [line["case"], *([f"{line['worst']:.1e}", line["of"]] if "worst" in line else ["", ""])]
            rows.append(f"| {' | '.join([*cells, line.get('error', 'right' if line.get('ok') else '**wrong**')])} |")
    for part in ("layers", "supernet"):
        timed_lines = [line for line in lines if line["part"] == part and "ms" in line]
        names = list(dict.fromkeys(name for line in timed_lines for name in line["ms"]))
        rows += ["", f"| case | {' | '.join(f'{name} ms' for name in names)} | best / LSTM | plain / best |"]
        rows.append(f"|{' --- |' * (len(names) + 3)}")
        for line in timed_lines:
            ms = line["ms"]
            best = min(ms[engine] for engine in ENGINES if engine in ms)
            cells = [f"{ms[name]:.3g}" if name in ms else "-" for name in names]
            cells += [f"{best / ms['lstm']:.2f}" if "lstm" in ms else "-", f"{ms['plain'] / best:.1f}"]
            rows.append(f"| {' | '.join([line['case'], *cells])} |")
    rows += ["", "| command | seconds | ended | epochs |", "| --- | --- | --- | --- |"]
    for line in lines:
        if "rc" in line:
            ended = "yes" if line["rc"] == 0 else f"stopped ({line['rc']})"
            rows.append(
                f"| {line['part']}, {line['case']} | {line['seconds']:.0f} | {ended} | {len(line.get('history', ()))} |"
            )
    return "\n".join(rows)


def main() -> None:
    """Measures, or prints what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--out", type=Path, required=True, help="folder of on_gpu.jsonl")
    parser.add_argument("--work", type=Path, help="folder of the commands' runs (OUT/runs)")
    parser.add_argument("--parts", nargs="+", metavar="PART", help="only these")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--text", metavar="DIR", help="Penn Treebank (the bundled text)")
    parser.add_argument("--tagging", metavar="CORPUS", help="as for tag train (demo)")
    parser.add_argument("--data-root", help="folder with the named corpora")
    parser.add_argument("--embeddings", nargs="+", metavar="EMBEDDING", help="as for tag train (one-hot)")
    parser.add_argument("--toy", action="store_true", help="tiny sizes")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        print(tables(arguments.out))
        return
    if arguments.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here; --device cpu --toy tries everything out")
    arguments.name = torch.cuda.get_device_name(arguments.device) if arguments.device.type == "cuda" else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32; bfloat16 is the fast one
    measure(arguments)


if __name__ == "__main__":
    main()
