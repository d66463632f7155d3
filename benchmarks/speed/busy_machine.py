"""What several threads cost on a machine that is busy otherwise, and what it helps that they sleep where they wait.

    python -m benchmarks.speed.busy_machine [--out benchmarks/results/busy_machine.jsonl]

A training step of a recurrent layer in both directions, 20 steps of time, once on a machine that is idle otherwise and
once beside as many busy processes as it has processors; each in a process of its own, for some seconds. The settings:
one thread; as many as processors; and so many with GOMP_SPINCOUNT=1000, which the command `flair-nas` sets.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.json_lines import processor

RESULTS = Path(__file__).parents[1] / "results" / "busy_machine.jsonl"
SIZES = ((1, 256, 256), (8, 64, 100), (32, 256, 612))  # B, H, D
LAYERS = ("lstm", "i-darts-ptb")
SETTINGS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "all threads": {},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
}
SECONDS = 4


def measure(layer: str, batch: int, hidden_size: int, input_size: int) -> float:
    """Milliseconds of a training step in this process."""
    import torch

    from flair_nas import SearchedRNN, load_genotype

    torch.manual_seed(0)
    sizes = (input_size, hidden_size)
    rnn = (
        torch.nn.LSTM(*sizes, bidirectional=True)
        if layer == "lstm"
        else SearchedRNN(*sizes, load_genotype(layer), bidirectional=True)
    )
    x = torch.randn(20, batch, input_size)

    def step() -> None:
        rnn(x)[0].sum().backward()
        rnn.zero_grad()

    step()  # which compiles kernels
    step()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        step()
        count += 1
    return 1000 * (time.perf_counter() - started) / count


def run(busy: bool) -> list[dict]:
    """All figures, beside busy processes or not."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(len(os.sched_getaffinity(0)) * busy)]
    found = []
    try:
        for layer in LAYERS:
            for sizes in SIZES:
                for name, variables in SETTINGS.items():
                    environment = {
                        k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))
                    } | variables
                    command = [sys.executable, "-m", __spec__.name, "--measure", layer, *map(str, sizes)]
                    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                    found.append({"busy": busy, "layer": layer, "batch": sizes[0], "hidden_size": sizes[1],
                                  "setting": name, "ms": float(done.stdout),
                                  "processor": processor()})  # fmt: skip
                    print(json.dumps(found[-1]), flush=True)
    finally:
        for other in others:
            other.kill()
    return found


def table() -> str:
    """The figures as a table."""
    lines = [json.loads(text) for text in RESULTS.read_text().splitlines()]
    of = {(x["busy"], x["layer"], x["batch"], x["hidden_size"], x["setting"]): x["ms"] for x in lines}
    headers = " | ".join(f"{name}, {when}" for when in ("idle", "busy") for name in SETTINGS)
    rows = [f"| layer | B | H | {headers} |",
            "| --- | --- | --- |" + " --- |" * 2 * len(SETTINGS)]  # fmt: skip
    for layer in LAYERS:
        for batch, hidden_size, _ in SIZES:
            cells = [f"{of[busy, layer, batch, hidden_size, name]:.1f}" for busy in (False, True) for name in SETTINGS]
            rows.append(f"| {layer} | {batch} | {hidden_size} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Measures all, or in a process of its own one figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        layer, *sizes = arguments.measure
        print(measure(layer, *map(int, sizes)))
    else:
        lines = run(False) + run(True)
        if arguments.out:
            arguments.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
