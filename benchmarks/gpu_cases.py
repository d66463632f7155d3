"""What `on_gpu.py` checks and measures: a function for each part, which gives its cases or does one of them."""

import argparse
import contextlib
import copy
import dataclasses
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import product_floor
import torch
from json_lines import lines_in
from recurrent_speed import PRECISIONS, Step, batch_sizes, genotype_of, in_turn
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from flair_nas import SearchedRNN
from flair_nas.cli.version import describe
from flair_nas.kernels import graphs
from flair_nas.supernet import CellSupernet

ENGINES = ("plain", "columns", "triton", "graphs")
LAYERS = ("darts-v2", "i-darts-ptb", "ess-ptb")
DTYPES = PRECISIONS | {"tf32": torch.float32}
FIRST_SIZE = "64x35x850"  # that of the papers
SIZES = ("32x35x256", "32x35x512", "32xwnutx256", "1x35x256")
TOY_SIZES = ("2x3x8", "1x3x8")
LIMIT = 90.0  # seconds that a case may take which is no command; one that waits for ever is ended
_REPEATS = 25
_STOP = 20  # seconds that a command gets to write its checkpoint
_KERNELS_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to measure.

    Args:
        part: which of the parts of `on_gpu.py`.
        name: of it, within its part.
        guess: seconds that it takes at least.
        work: gives its figures; its argument is the seconds that it may take.
        share: of the time that is left, what it may take: commands go on the next time.
        limit: seconds after which it has hung; None if it ends itself.
        engine: what it is about, if that is one.
        alone: the process ends with it, as it leaves something behind.
    """

    part: str
    name: str
    guess: float
    work: Callable[[float], dict[str, Any]]
    share: float = 1.0
    limit: float | None = LIMIT
    engine: str | None = None
    alone: bool = False


def machine(device: torch.device) -> dict[str, Any]:
    """What it runs on."""
    found: dict[str, Any] = {"torch": torch.__version__, "setup": describe()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "capability": f"{properties.major}.{properties.minor}"}
        found |= {"memory_gb": properties.total_memory / 1e9, "cudnn": torch.backends.cudnn.version()}
    return found


@contextlib.contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """Products in float32, in TF32 (cuDNN's, too, which has them by default) or, by autocast, in bfloat16."""
    flags = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [flag.allow_tf32 for flag in flags]
    for flag in flags:
        flag.allow_tf32 = precision == "tf32"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            yield
    finally:
        for flag, value in zip(flags, before):
            flag.allow_tf32 = value


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


def check(
    make: Callable[[], nn.Module], ragged: bool, engine: str, precision: str, second: bool, device: torch.device
) -> dict[str, Any]:
    """How far an engine is from float64 on the CPU: of all tensors that which is worst for what is allowed, by norms.

    It runs on other data and with other weights first: what is left of those would be seen. With bfloat16 an engine
    may be a few times as far as the equations are with it, on the same device.
    """
    torch.manual_seed(1)
    module = make().train(not second)
    exact = copy.deepcopy(module).double()
    other = make()
    input, lengths = torch.randn(9, 6, 24), [9, 7, 7, 4, 2, 1] if ragged else []
    module.to(device)
    right = copy.deepcopy(module.state_dict())
    module.load_state_dict(other.state_dict())
    with products_in(precision, device):
        gradients(module, torch.randn_like(input).to(device), lengths, engine, second)
    module.load_state_dict(right)
    with products_in(precision, device):  # again, as autocast keeps the weights of before
        found = gradients(module, input.to(device), lengths, engine, second)
    wanted = gradients(exact, input.double(), lengths, "plain", second)
    errors, allowed = distances(found, wanted), dict.fromkeys(wanted, 1e-3 if second else 1e-4)
    if precision != "float32":
        module.load_state_dict(right)
        with products_in(precision, device):
            by_equations = gradients(module, input.to(device), lengths, "plain", second)
        allowed = {name: 4 * error + 0.02 for name, error in distances(by_equations, wanted).items()}
    worst = max(errors, key=lambda name: errors[name] / allowed[name])
    found_ok = all(errors[name] < allowed[name] for name in errors)
    return {"worst": errors[worst], "allowed": allowed[worst], "of": worst, "ok": found_ok}


def distances(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, float]:
    """The norm of what is wrong in each tensor, relative to its own; infinite where it is not finite."""
    norms = {
        name: float((found[name].cpu().double() - tensor).norm() / tensor.norm().clamp_min(1e-9))
        for name, tensor in wanted.items()
    }
    return {name: norm if math.isfinite(norm) else math.inf for name, norm in norms.items()}


def checks(device: torch.device, engines: Sequence[str]) -> list[Case]:
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
                for precision in PRECISIONS if engine != "plain" else ("float32",):
                    work = partial(check, make, ragged, engine, precision, False, device)
                    cases.append((engine, "ragged, " * ragged + f"{name}, {engine}, {precision}", work))
    for name, make in made.items():
        cases.append(("plain", f"second order, {name}", partial(check, make, False, "plain", "float32", True, device)))
    return [Case("correct", name, 5, lambda _, work=work: work(), engine=engine) for engine, name, work in cases]


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
    return lambda kept=calls: graph.replay()  # what it reads has to stay


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of it, until the GPU is done."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def peak_mb(work: Callable[[], Any], device: torch.device) -> float | None:
    """MB (10^6 bytes) that it takes from a GPU, a new graph with its memory included; None on a CPU."""
    if device.type == "cpu":
        return None
    graphs.drop()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_reserved(device)
    work()
    return (torch.cuda.max_memory_reserved(device) - before) / 1e6


def figures(works: Mapping[str, Callable[[], Any]], device: torch.device, seconds: float) -> dict[str, Any]:
    """Milliseconds, the median of what is run in turn, and memory of each; what cannot run has its error."""
    right, errors = runnable(works, device)
    times = in_turn({name: partial(timed, work, device) for name, work in right.items()}, _REPEATS, seconds)
    found: dict[str, Any] = {"ms": {name: statistics.median(found) for name, found in times.items()}}
    found["mb"] = {name: peak_mb(work, device) for name, work in right.items() if name != "products"}
    return found | ({"errors": errors} if errors else {})


def runnable(
    works: Mapping[str, Callable[[], Any]], device: torch.device
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """What runs, and the errors of the others, unless CUDA does nothing more after them."""
    right, errors = {}, {}
    for name, work in works.items():
        try:
            timed(work, device)
            right[name] = work
        except Exception as error:  # what else there is, is worth as much
            if is_sticky(error):
                raise
            errors[name] = f"{type(error).__name__}: {error}"[:500]
    return right, errors


def is_sticky(error: Exception) -> bool:
    """Whether CUDA does nothing more in this process."""
    if "CUDA" in str(error) and not isinstance(error, torch.cuda.OutOfMemoryError):
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
    return False


def layer_works(
    name: str, size: str, training: bool, precision: str, device: torch.device, engines: Sequence[str]
) -> dict[str, Callable[[], Any]]:
    """A step of one layer with each engine, of cuDNN's LSTM, and its products alone."""
    hidden, genotype = batch_sizes(size)[1], genotype_of(name)
    step = partial(Step, size=size, training=training, precision=precision, device=device)
    searched, lstm = SearchedRNN(hidden, hidden, genotype).to(device), nn.LSTM(hidden, hidden).to(device)
    works: dict[str, Callable[[], Any]] = {engine: step(searched, kernels=engine) for engine in engines}
    works["lstm"] = step(lstm)
    works["products"] = bare_products(genotype, size, training, DTYPES[precision], device)
    return works


def supernet_works(
    batch: int, history: int, toy: bool, precision: str, device: torch.device, engines: Sequence[str]
) -> dict[str, Callable[[], Any]]:
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

    return {engine: partial(run, engine) for engine in engines}


def measured(
    works: Callable[[], dict[str, Callable[[], Any]]], precision: str, device: torch.device, seconds: float
) -> Callable:
    """The work of a case of `layers` or `supernet`, which repeats it for so long."""

    def work(left: float) -> dict[str, Any]:
        with products_in(precision if precision == "tf32" else "float32", device):  # steps have autocast of their own
            return figures(works(), device, min(left / 4, seconds))

    return work


def profiled(works: Callable[[], dict[str, Callable[[], Any]]], device: torch.device) -> Callable:
    """The work of a case of `profile`: of each engine time on the GPU, launches, and the kernels that take longest."""
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU

    def work(left: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        right, errors = runnable(works(), device)
        for name, run in right.items():
            for _ in range(3):
                timed(run, device)
            wall = timed(run, device)
            with profile(activities=[activity]) as records:
                timed(run, device)
            on_cpu = activity == ProfilerActivity.CPU
            kernels = [
                (event.key, event.count, (event.self_cpu_time_total if on_cpu else event.self_device_time_total) / 1e3)
                for event in records.key_averages()
            ]
            kernels.sort(key=lambda kernel: -kernel[2])
            found[name] = {
                "ms": 1000 * wall,
                "busy_ms": sum(kernel[2] for kernel in kernels),
                "launches": sum(kernel[1] for kernel in kernels if kernel[2] > 0),
                "kernels": [[key[:80], count, round(ms, 4)] for key, count, ms in kernels[:_KERNELS_SHOWN]],
            }
        return {"profile": found} | ({"errors": errors} if errors else {})

    return work


# --- commands ---


def fastest(lines: Sequence[Mapping[str, Any]], part: str) -> str | None:
    """The engine that was fastest in that part, of those that were always right; None for the default."""
    checked = [line for line in lines if line["part"] == "correct"]
    wrong = {line["engine"] for line in checked if not line.get("ok") or "no_graph" in line}
    right = {line["engine"] for line in checked} - wrong
    own = [line for line in lines if line["part"] == part and "ms" in line]
    times = [
        {name: ms for name, ms in line["ms"].items() if name != "graphs" or "no_graph" not in line} for line in own
    ]
    known = [engine for engine in right if times and all(engine in ms for ms in times)]
    return min(known, key=lambda engine: sum(ms[engine] / min(ms.values()) for ms in times), default=None)


def command(
    verb: list[str], options: list[str], folder: Path, device: torch.device, left: float, kernels: str | None = None
) -> dict[str, Any]:
    """Runs a command, or goes on with it in its folder, for so long; what it left there, and how long it ran now."""
    where = ["--resume", str(folder)] if (folder / "config.yaml").exists() else [*options, "--out", str(folder)]
    start = time.perf_counter()
    graphs.drop()
    words = [*verb, "--quiet", "--device", str(device), *where]
    environment = {**os.environ, "FLAIR_NAS_KERNELS": kernels or "auto"}
    process = subprocess.Popen(
        [sys.executable, "-m", "flair_nas", *words],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=max(1.0, left - _STOP))[1]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=2 * _STOP)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, "rc": process.returncode, "kernels": kernels}
    found["said"] = said.strip()[-500:]
    for history in folder.glob("**/history.jsonl"):  # that of a tagger is in the folder of its seed
        found["history"] = lines_in(history)
    for name in ("metrics", "genotype"):
        if (file := folder / f"{name}.json").exists():
            found[name] = json.loads(file.read_text(encoding="utf-8"))
    return found


def commands(arguments: argparse.Namespace, lines: Callable[[], list[dict[str, Any]]]) -> dict[str, list[Case]]:
    """Searches at the papers' settings, two taggers, and the retraining of a cell, by part.

    On a GPU products are in bfloat16, but for taggers, and where the name says float32. Each runs on the engine that
    `lines` say is right and fastest, and takes no more than half the time that is left.
    """
    text, small = ["--text", arguments.text or "demo"], ["--hidden-size", "8", "--epochs", "1"] * arguments.toy
    tags = ["--corpus", arguments.tagging or "demo", "--embeddings", *(arguments.embeddings or ["one-hot"])]
    tags += ["--data-root", arguments.data_root] if arguments.data_root else []
    low = ["--precision", "bfloat16"] if arguments.device.type == "cuda" else []  # few CPUs have it
    found = [
        ("search", preset, ["search"], ["--preset", preset, *text, *low]) for preset in ("i-darts-ptb", "darts-ptb")
    ]
    if low:
        found.append(("search", "i-darts-ptb, float32", ["search"], ["--preset", "i-darts-ptb", *text]))
    for rnn in ("lstm", "i-darts-ptb") if find_spec("flair") else ():
        found.append(("tagger", rnn, ["tag", "train"], [*tags, "--rnn", rnn, "--epochs", "4"]))
    found.append(("retrain", "darts-v2", ["lm", "train"], ["--preset", "darts-ptb", "--rnn", "darts-v2", *text, *low]))

    def work(part: str, name: str, verb: list[str], options: list[str], left: float) -> dict[str, Any]:
        kernels = fastest(lines(), "supernet" if part == "search" else "layers")
        folder = arguments.work / f"{part}-{name.replace(', ', '-')}"
        return command(verb, [*options, *small], folder, arguments.device, left, kernels)

    cases: dict[str, list[Case]] = {"search": [], "tagger": [], "retrain": []}
    for part, name, verb, options in found:
        share = 1.0 if part == "retrain" else 0.5
        run = partial(work, part, name, verb, options)
        cases[part].append(Case(part, name, 1 if arguments.toy else 120, run, share, limit=None))
    return cases
