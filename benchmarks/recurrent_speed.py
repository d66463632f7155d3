"""Time and memory of a training step and of inference, next to `nn.LSTM` of the same sizes, all in one run.

    python benchmarks/recurrent_speed.py [--threads 2] [--repeats 15] [--out FILE]

Cases are interleaved: each repeat runs the LSTM and every genotype once, and ratios are taken within a repeat, so that
a machine that speeds up or slows down favours none. Peak memory is that of a fresh process in three steps, over
what it held before. A JSON line per case goes to --out, a table to standard output.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from flair_nas import SearchedRNN, load_genotype

GENOTYPES = ("darts-v2", "i-darts-ptb", "ess-hand-made")
FILES = Path(__file__).parent / "genotypes"  # of those that are not bundled
BATCH, STEPS = 32, 35


def layer(name: str, size: int) -> nn.Module:
    """The layer of that name with D = H = size."""
    if name == "lstm":
        return nn.LSTM(size, size)
    file = FILES / f"{name}.json"
    return SearchedRNN(size, size, load_genotype(file if file.exists() else name))


def run(module: nn.Module, data: torch.Tensor, training: bool) -> float:
    """Seconds of one training step (forward and backward) or one inference."""
    start = time.perf_counter()
    if training:
        module(data)[0].sum().backward()
        module.zero_grad()
    else:
        with torch.no_grad():
            module(data)
    return time.perf_counter() - start


def times(size: int, training: bool, repeats: int) -> list[dict]:
    """Medians of all layers at one size, with ratios to the LSTM within each repeat."""
    names = ("lstm", *GENOTYPES)
    modules = {name: layer(name, size).train(training) for name in names}
    data = torch.randn(STEPS, BATCH, size)
    for module in modules.values():
        run(module, data, training)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name, module in modules.items():
            seconds[name].append(run(module, data, training))
    rows = []
    for name in names:
        ratios = sorted(own / lstm for own, lstm in zip(seconds[name], seconds["lstm"]))
        rows.append(
            {
                "case": "training" if training else "inference",
                "H": size,
                "layer": name,
                "median_ms": 1000 * statistics.median(seconds[name]),
                "ratio": statistics.median(ratios),
                "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
            }
        )
    return rows


def peak_memory(name: str, size: int) -> float:
    """MB (10^6 bytes) that training steps add to a fresh process' peak; run in a process of its own."""
    run(layer(name, 8), torch.randn(2, 2, 8), training=True)  # the libraries' own buffers
    module, data = layer(name, size), torch.randn(STEPS, BATCH, size)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of importing torch, is forgotten
    before = _memory("VmRSS")
    for _ in range(3):  # as in a training loop, the last loss is still there in the next step
        loss = module(data)[0].sum()
        loss.backward()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    """A figure of this process in MB (10^6 bytes), as Linux gives it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e6


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", help="file for a JSON line per case")
    parser.add_argument("--memory-of", nargs=2, metavar=("LAYER", "H"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print(peak_memory(arguments.memory_of[0], int(arguments.memory_of[1])))
        return
    rows = []
    for size in (256, 512):
        for training in (True, False):
            rows += times(size, training, arguments.repeats)
    print(f"B = {BATCH}, T = {STEPS}, D = H, float32, {arguments.threads} threads, torch {torch.__version__}\n")
    print("| case | H | layer | median ms | × LSTM | quartiles |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        low, high = row["ratio_quartiles"]
        print(f"| {row['case']} | {row['H']} | {row['layer']} | {row['median_ms']:.1f} | {row['ratio']:.2f} | "
              f"{low:.2f} to {high:.2f} |")  # fmt: skip
    print("\n| layer | peak MB of training steps, H = 512 | × LSTM |\n| --- | --- | --- |")
    for name in ("lstm", *GENOTYPES):
        command = [sys.executable, __file__, "--memory-of", name, "512", "--threads", str(arguments.threads)]
        megabytes = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        rows.append({"case": "memory", "H": 512, "layer": name, "peak_mb": megabytes})
        lstm = next(row["peak_mb"] for row in rows if row["case"] == "memory")
        print(f"| {name} | {megabytes:.0f} | {megabytes / lstm:.2f} |")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
