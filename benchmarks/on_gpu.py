"""What flair-nas does on a GPU, checked and measured in order of value, for as many minutes as there are.

    python benchmarks/on_gpu.py --minutes 25 --out DIR [--text PTB] [--tagging CORPUS --embeddings EMBEDDING ...]
    python benchmarks/on_gpu.py --minutes 2 --out DIR --device cpu --toy      # does it all run?
    python benchmarks/on_gpu.py --table --out DIR                             # what is there, as tables

`correct`: output and gradients of every engine, of second order too, against the equations in float64 on the CPU.
`layers`: a step of training and of inference of each engine, of `nn.LSTM` (cuDNN's) and of the layer's products alone
(in a CUDA graph, so that launching them costs nothing), in turn. `supernet`: the same for a search. Both with the
memory that they take. `profile`: where the time of a step goes. `search`, `tagger`, `retrain`: the commands themselves,
on the engine that was right and fastest, in folders that they go on in.

DIR/on_gpu.jsonl gets a line as soon as there is one; a case that has one is not done again, so pieces of ten minutes
add up. A case that fails, hangs or takes its process with it has its error in its line; the rest goes on, and the next
time it comes last. Where no CUDA graph could be made, the line has `no_graph`, with the reason: the figures of `graphs`
are those of PyTorch's operators then. A case is begun if its guess fits into the time that is left; a command is
stopped after half of that, so that others have their turn, and goes on the next time. flair-nas need not be installed
(`PYTHONPATH=.`), nor Flair, without which there is no `tagger`.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_cases import (
    DTYPES,
    ENGINES,
    FIRST_SIZE,
    LAYERS,
    PRECISIONS,
    SIZES,
    TOY_SIZES,
    Case,
    checks,
    commands,
    is_sticky,
    layer_works,
    machine,
    measured,
    profiled,
    supernet_works,
)
from gpu_tables import tables
from json_lines import lines_in, put

from flair_nas.kernels import graphs

FILE, BEGUN = "on_gpu.jsonl", "on_gpu.begun.json"
_AGAIN = 75  # exit status: go on in another process
_ENOUGH = 3  # cases in which no graph could be made, after which none is tried any more in a call


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """In order of value."""
    device, toy = arguments.device, arguments.toy
    seconds = 0.1 if toy else 3.0
    engines = [engine for engine in ENGINES if device.type == "cuda" or engine not in ("triton", "graphs")]
    graphless = [line for line in lines_of(arguments.out) if line.get("call") == arguments.call and "no_graph" in line]
    if len(graphless) >= _ENOUGH:
        engines = [engine for engine in engines if engine != "graphs"]
    first, *others = TOY_SIZES if toy else (FIRST_SIZE, *SIZES)

    def layer(name: str, size: str, mode: str, precision: str) -> Case:
        works = partial(layer_works, name, size, mode == "training", precision, device, engines)
        return Case(
            "layers",
            f"{mode}, {size}, {name}, {precision}",
            1 if toy else 12,
            measured(works, precision, device, seconds),
        )

    def supernet(history: int, precision: str) -> partial[dict[str, Any]]:
        return partial(supernet_works, 4 if toy else 256, history, toy, precision, device, engines)

    found = [Case("machine", "setup", 0, lambda _: machine(device)), *checks(device, engines)]
    found += [layer("i-darts-ptb", first, "training", precision) for precision in DTYPES]
    for history in (0, 3):
        for precision in DTYPES:
            work = measured(supernet(history, precision), precision, device, seconds)
            found.append(Case("supernet", f"m = {history}, {precision}", 1 if toy else 15, work))
    profiles = {
        f"training, {first}, i-darts-ptb, bfloat16": partial(
            layer_works, "i-darts-ptb", first, True, "bfloat16", device, engines
        ),
        "supernet, m = 0, bfloat16": supernet(0, "bfloat16"),
    }
    for name, works in profiles.items():  # what records kernels may stay, and slow down what follows
        found.append(Case("profile", name, 1 if toy else 15, profiled(works, device), alone=True))
    of_commands = commands(arguments, lambda: lines_of(arguments.out))
    found += [of_commands["search"][0], *of_commands["tagger"]]
    found += [layer("i-darts-ptb", first, "inference", precision) for precision in PRECISIONS]
    for size in others:
        for mode in ("training", "inference"):
            found += [layer(name, size, mode, precision) for name in LAYERS[1:] for precision in PRECISIONS]
    return [*found, *of_commands["search"][1:], *of_commands["retrain"]]


def is_done(line: Mapping[str, Any]) -> bool:
    """Whether a case has its figures: it did not fail, was not stopped, and they are those of what was asked for."""
    failed = "error" in line or line.get("rc", 0) != 0
    return not failed and line.get("ok", True) and "no_graph" not in line


def measure(arguments: argparse.Namespace) -> None:
    """Does what has no figures yet, in order, while there is time."""
    end = time.monotonic() + 60 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work or arguments.out / "runs"
    before = lines_of(arguments.out)
    done = {(line["part"], line["case"]) for line in before if is_done(line) or line.get("call") == arguments.call}
    failed = {(line["part"], line["case"]) for line in before if not is_done(line) and "rc" not in line}
    for case in sorted(cases_of(arguments), key=lambda case: (case.part, case.name) in failed):
        left, key = end - time.monotonic(), (case.part, case.name)
        if key in done or (arguments.parts and case.part not in arguments.parts):
            continue
        if left < case.guess:
            print(f"no time for {case.part}, {case.name}", file=sys.stderr)
            continue
        begun = {"part": case.part, "case": case.name, "device": arguments.name, "call": arguments.call}
        begun |= {"engine": case.engine} if case.engine else {}
        (arguments.out / BEGUN).write_text(json.dumps(begun), encoding="utf-8")
        started, again, fallbacks = time.perf_counter(), case.alone, graphs.fallbacks.copy()
        signal.alarm(0 if case.limit is None else int(case.limit))
        try:
            found = case.work(left * case.share)
        except Exception as error:  # the rest is worth as much
            found = {"error": f"{type(error).__name__}: {error}"[:2000]}
            again = again or is_sticky(error)
        signal.alarm(0)
        if new := graphs.fallbacks - fallbacks:
            found["no_graph"] = sorted(new)
            again = True  # it tries no graphs any more
        put(begun | found | {"took": round(time.perf_counter() - started, 2)}, arguments.out / FILE)
        (arguments.out / BEGUN).unlink()
        if again:
            sys.exit(_AGAIN)


def watch(arguments: argparse.Namespace) -> int:
    """Has `measure` run in a process of its own, and in another one when a case has taken that with it."""
    end, call = time.monotonic() + 60 * arguments.minutes, f"{os.getpid()}-{time.time():.0f}"
    begun = arguments.out / BEGUN
    begun.unlink(missing_ok=True)
    while (left := end - time.monotonic()) > 0:
        process = subprocess.Popen([sys.executable, *sys.argv, "--minutes", str(left / 60), "--call", call])
        try:
            status = process.wait()
        except KeyboardInterrupt:  # which it has had, too
            process.wait()
            return 130
        if status == _AGAIN:
            continue
        if status == 0 or not begun.exists():
            return status
        text = begun.read_text(encoding="utf-8")
        begun.unlink()
        if not text.endswith("}"):  # it ended before it had begun anything
            return status
        line = json.loads(text)
        put(line | {"error": f"its process ended with status {status}"}, arguments.out / FILE)
    return 0


def lines_of(out: Path) -> list[dict[str, Any]]:
    """What has been measured there."""
    return lines_in(out / FILE) if (out / FILE).exists() else []


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--minutes", type=float, default=25)
    found.add_argument("--out", type=Path, required=True, help="folder of on_gpu.jsonl")
    found.add_argument("--work", type=Path, help="folder of the commands' runs (OUT/runs)")
    found.add_argument("--parts", nargs="+", metavar="PART", help="only these")
    found.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    found.add_argument("--text", metavar="DIR", help="Penn Treebank (the bundled text)")
    found.add_argument("--tagging", metavar="CORPUS", help="as for tag train (demo)")
    found.add_argument("--data-root", help="folder with the named corpora")
    found.add_argument("--embeddings", nargs="+", metavar="EMBEDDING", help="as for tag train (one-hot)")
    found.add_argument("--toy", action="store_true", help="tiny sizes")
    found.add_argument("--table", action="store_true")
    found.add_argument("--call", help=argparse.SUPPRESS)  # of `watch`
    return found


def main() -> int:
    """Measures, or prints what there is; the exit status."""
    arguments = parser().parse_args()
    if arguments.table:
        print(tables(lines_of(arguments.out)))
        return 0
    if arguments.device.type == "cuda" and not torch.cuda.is_available():
        parser().error("there is no GPU here; --device cpu --toy tries everything out")
    if arguments.call is None:
        return watch(arguments)
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("flair_nas").setLevel(logging.DEBUG)  # with all of why something could not be captured
    arguments.name = torch.cuda.get_device_name(arguments.device) if arguments.device.type == "cuda" else "cpu"
    measure(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
