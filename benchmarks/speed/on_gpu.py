"""Time of searched layers and supernets on a GPU, beside cuDNN's LSTM, each checked against float64.

    python -m benchmarks.speed.on_gpu --out FILE [--minutes 8]        # again until nothing is left; half an hour
    python -m benchmarks.speed.on_gpu --out FILE --table              # what FILE holds, as a table
    python -m benchmarks.speed.on_gpu --out FILE --device cpu --toy   # does it all run?

Each case measures these side by side, in an order drawn anew in each repeat:

    fast                     the default engines of a GPU (FLAIR_NAS_KERNELS=auto)
    columns                  PyTorch's operators alone (FLAIR_NAS_KERNELS=columns), if that is not the default
    graph                    the default in one CUDA graph for all steps (`torch.cuda.make_graphed_callables`)
    lstm                     `nn.LSTM`, cuDNN's
    lstm graph               the same in one CUDA graph

Cases called "compiled" measure, beside these,

    compile                  the equations (FLAIR_NAS_KERNELS=plain), the cell's step under `torch.compile`
    compile reduce-overhead  the same in CUDA graphs, mode="reduce-overhead"

A whole sequence under `torch.compile` unrolls its steps, and 35 of them take longer to compile than a case may take.
Before that, output and gradients of each are compared with the same module in float64. A case runs in a process of its
own, since a failed capture spoils its process. Its line is added to FILE as soon as it is there. A case that fails or
hangs has its error in its line and is tried again by the next call.
"""

import argparse
import copy
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.json_lines import as_table, lines_in, lines_so_far, put
from benchmarks.speed.recurrent_speed import in_turn, make_layer, ratio
from flair_nas.cli.version import describe
from flair_nas.supernet import CellSupernet

LAYERS = {
    "small-relu-tanh": "small-relu-tanh",
    "elementwise": "small-relu-tanh,recurrence=elementwise",
    "i-darts-ptb": "i-darts-ptb",
    "ess-ptb": "ess-ptb",
    "small-tanh": "small-tanh",
    "sru": "sru",
}
STEPWISE = ("elementwise", "sru")
"""Layers with an elementwise recurrence."""
FULL, PARTIAL = ("32x35x256", "64x35x850"), ("100x250x512", "1x35x256")
"""Sizes BxTxH that are measured in both precisions, and those that are measured in float32 alone."""
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}
"""Precisions of the products, and the relative error against float64 that is right with each."""
LSTM_TOLERANCE = 2e-3  # cuDNN's products are in TF32, unless it is told otherwise
COMPILED = {"compile": "default", "compile reduce-overhead": "reduce-overhead"}
LIMIT = 240  # seconds of a case, the time to compile included


def cases_of(toy: bool) -> list[str]:
    """Return the names of the cases, in order of value: kind, mode, size BxTxH, precision, and eager or compiled."""
    full, partial = (("2x3x8",), ()) if toy else (FULL, PARTIAL)
    cases = [f"supernet, training, {'4x3x8' if toy else '256x35x300'}, {precision}, eager" for precision in TOLERANCES]
    for precision in TOLERANCES:
        for size in (*full, *partial) if precision == "float32" else full:
            for mode in ("training", "inference"):
                cases += [f"{name}, {mode}, {size}, {precision}, eager" for name in LAYERS]
    return cases + [f"{name}, training, {full[0]}, float32, compiled" for name in LAYERS if name not in STEPWISE]


def compiled(layer: nn.Module, mode: str) -> nn.Module:
    """Return a copy of a layer whose cells have their steps compiled."""
    layer = copy.deepcopy(layer)
    for module in layer.modules():
        if hasattr(module, "step"):
            module.step = torch.compile(module.step, mode=mode)  # type: ignore[assignment]
    return layer


def graphed(layer: nn.Module, data: Tensor, training: bool, low: bool) -> nn.Module:
    """Return a copy of a layer whose forward and backward passes are CUDA graphs of their own."""
    layer = copy.deepcopy(layer)
    sample = data.clone().requires_grad_(training)
    gc.collect()  # what is collected during a capture spoils it
    with torch.autocast("cuda", torch.bfloat16, enabled=low, cache_enabled=False):
        return torch.cuda.make_graphed_callables(Output(layer), (sample,))  # type: ignore[return-value]


class Output(nn.Module):
    """The output of a layer, in a tuple, without its state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Tensor) -> tuple[Tensor]:
        """Run the layer."""
        return (self.layer(data)[0],)


def run(module: nn.Module, data: Tensor, kernels: str, training: bool, low: bool) -> list[Tensor]:
    """Run a step; return the output and, in training, the gradients of input and weights."""
    os.environ["FLAIR_NAS_KERNELS"] = kernels
    torch.compiler.cudagraph_mark_step_begin()
    data = data.detach().requires_grad_(training)
    with torch.set_grad_enabled(training), torch.autocast(data.device.type, torch.bfloat16, enabled=low):
        output = module(data)[0]
    if not training:
        return [output]
    direction = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    gradients = torch.autograd.grad(output, [data, *module.parameters()], direction, allow_unused=True)
    return [output.detach(), *(gradient for gradient in gradients if gradient is not None)]


def relative_error(measured: list[Tensor], exact: list[Tensor]) -> float:
    """Return the largest relative error of the tensors, by norms."""
    pairs = zip(measured, exact, strict=True)
    return max(float((a.double() - b).norm() / b.norm().clamp_min(1e-30)) for a, b in pairs)


def measure(case: str, device: torch.device, seconds: float) -> dict[str, Any]:
    """Check and time all that a case compares."""
    kind, mode, size, precision, how = case.split(", ")
    batch, steps, hidden = map(int, size.split("x"))
    training, low = mode == "training", precision == "bfloat16"
    torch.manual_seed(1)
    supernet = kind == "supernet"
    made = CellSupernet(hidden, hidden, 8, "i-darts") if supernet else make_layer(LAYERS[kind], size)
    searched = made.to(device).train(training)
    data = torch.randn(steps, batch, hidden, device=device)
    ways: dict[str, tuple[Callable[[], nn.Module], nn.Module, str]] = {"fast": (lambda: searched, searched, "auto")}
    if kind in STEPWISE:
        ways["columns"] = (lambda: searched, searched, "columns")
    if device.type == "cuda" and how == "eager" and not supernet:
        ways["graph"] = (lambda: graphed(searched, data, training, low), searched, "auto")
    if how == "compiled":
        for name, option in COMPILED.items():
            ways[name] = (partial(compiled, searched, option), searched, "plain")
    if not supernet:
        lstm = nn.LSTM(hidden, hidden).to(device).train(training)
        ways["lstm"] = (lambda: lstm, lstm, "auto")
        if "graph" in ways and training:  # cuDNN makes none of its backward pass in evaluation
            ways["lstm graph"] = (lambda: graphed(lstm, data, training, low), lstm, "auto")
    steps_of: dict[str, Callable[[], float]] = {}
    errors: dict[str, float] = {}
    right: dict[str, bool] = {}
    failures: dict[str, str] = {}
    for name, (make, weights, kernels) in ways.items():
        try:
            os.environ["FLAIR_NAS_KERNELS"] = kernels
            module = make()
            exact = run(copy.deepcopy(weights).double(), data.double(), "plain", training, low=False)
            errors[name] = relative_error(run(module, data, kernels, training, low), exact)
        except Exception as error:  # the others are worth as much
            failures[name] = f"{type(error).__name__}: {error}"[:1000]
        else:
            steps_of[name] = partial(timed, module, data, kernels, training, low)
            limit = LSTM_TOLERANCE if name.startswith("lstm") else TOLERANCES[precision]
            right[name] = errors[name] < max(limit, TOLERANCES[precision])
    memory = {name: peak_mib(step) for name, step in steps_of.items()} if device.type == "cuda" else {}
    times = in_turn(steps_of, 200, seconds)
    ratios = {name: ratio(own, times["lstm"]) for name, own in times.items() if "lstm" in times and name != "lstm"}
    ms = {name: sorted(own)[len(own) // 2] for name, own in times.items()}
    return {"errors": errors, "right": right, "ms": ms, "mib": memory, "to_lstm": ratios} | (
        {"failed": failures} if failures else {}
    )


def peak_mib(step: Callable[[], float]) -> float:
    """Return the MiB that a step adds to the GPU's memory at its peak; what a graph holds is not counted."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def timed(module: nn.Module, data: Tensor, *options: Any) -> float:
    """Return the seconds of a step."""
    wait = torch.cuda.synchronize if data.device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    run(module, data, *options)
    wait()
    return time.perf_counter() - start


def measure_all(arguments: argparse.Namespace) -> None:
    """Measure what has no figures yet, each case in a process of its own, while there is time."""
    end = time.monotonic() + 60 * arguments.minutes
    lines = lines_so_far(arguments.out)
    done, here = {line["case"] for line in lines if "error" not in line}, machine(arguments.device)
    options = ["--out", str(arguments.out), "--device", str(arguments.device), *["--toy"] * arguments.toy]
    for case in cases_of(arguments.toy):
        limit = min(LIMIT, end - time.monotonic())
        if case in done or limit < (5 if arguments.toy else 20):
            continue
        command = [sys.executable, "-m", __spec__.name, "--case", case, *options]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            found = json.loads(process.stdout) if process.returncode == 0 else {"error": process.stderr[-1000:]}
        except subprocess.TimeoutExpired:
            found = {"error": f"it took longer than {limit:.0f} s"}
        put({"case": case} | here | found, arguments.out)


def machine(device: torch.device) -> dict[str, Any]:
    """Return the versions, and the name of the GPU."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"device": name, "setup": describe()}


def table(lines: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown; of several lines of one case the last counts."""
    names = ["fast", "columns", "graph", *COMPILED, "lstm graph", "lstm"]
    rows = [["case", *(f"{name} ms" for name in names), *(f"{name} / LSTM" for name in names[:-1]), "wrong or failed"]]
    for case, line in {line["case"]: line for line in lines}.items():
        ms, ratios = line.get("ms", {}), line.get("to_lstm", {})
        wrong = [name for name, right in line.get("right", {}).items() if not right] + [*line.get("failed", {})]
        cells = [f"{ms[name]:.3g}" if name in ms else "-" for name in names]
        cells += [f"{ratios[name][1]:.2f}" if name in ratios else "-" for name in names[:-1]]
        rows.append([case, *cells, line.get("error", ", ".join(wrong) or "-").replace("\n", " ")])
    return as_table(rows)


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file of JSON lines")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--toy", action="store_true", help="tiny sizes")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # of `measure_all`
    arguments = parser.parse_args()
    if arguments.table:
        print(table(lines_in(arguments.out)))
    elif arguments.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here; --device cpu --toy tries everything out")
    elif arguments.case:
        print(json.dumps(measure(arguments.case, arguments.device, 0.2 if arguments.toy else 2)))
    else:
        measure_all(arguments)


if __name__ == "__main__":
    main()
