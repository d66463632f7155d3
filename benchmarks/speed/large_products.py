"""Time of large products by MKL and by oneDNN, and of layers with either, beside PyTorch's LSTM.

    python -m benchmarks.speed.large_products [--threads 1] [--out FILE]

Layers have D inputs and are trained: forward and backward on a batch of equal lengths. "MKL" is what PyTorch takes by
itself, "oneDNN" what flair_nas.nn.matrix_product takes on AMD's processors since Zen 5; here it is measured on any.
"""

import argparse
import random
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.json_lines import as_table, put
from benchmarks.speed.recurrent_speed import in_turn, make_layer, ratio
from flair_nas.nn import matrix_product

PRODUCTS = ((1120, 256, 512), (1120, 612, 512), (2000, 224, 448), (2240, 850, 1700))
LAYERS = ("small-tanh", "small-relu-tanh", "small-relu-tanh,recurrence=elementwise", "sru", "i-darts-ptb")
SIZES = ("32x35x612x256", "20x100x64x256", "64x35x850x850")


def multiplied(left: Tensor, right: Tensor, by_onednn: bool) -> float:
    """Return the seconds of a product."""
    matrix_product.MKL_IS_SLOW = by_onednn
    start = time.perf_counter()
    matrix_product.multiply(left, right)
    return time.perf_counter() - start


def trained(layer: nn.Module, data: Tensor, by_onednn: bool) -> float:
    """Return the seconds of a forward and backward pass."""
    matrix_product.MKL_IS_SLOW = by_onednn
    start = time.perf_counter()
    layer(data)[0].sum().backward()
    return time.perf_counter() - start


def main() -> None:
    """Print both tables, and add their rows to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE", help="add a JSON line for each row")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [["product", "MKL, GFLOP/s", "oneDNN, GFLOP/s", "time, oneDNN / MKL", "more for a new shape, ms"]]
    for size in PRODUCTS:
        left, right = torch.randn(*size[:2]), torch.randn(*size[1:])
        times = in_turn({on: partial(multiplied, left, right, on) for on in (False, True)}, 200, 2)
        speed = [f"{2e-6 * size[0] * size[1] * size[2] / sorted(times[on])[len(times[on]) // 2]:.0f}" for on in times]
        fresh = random.sample(range(size[0] // 2, size[0]), 50)  # of rows
        twice = [[1000 * multiplied(left[:count], right, True) for _ in range(2)] for count in fresh]
        extra = sorted(first - second for first, second in twice)
        rows.append(
            ["×".join(map(str, size)), *speed, f"{ratio(times[True], times[False])[1]:.2f}", f"{extra[25]:.2f}"]
        )
    show(rows, arguments)
    rows = [["layer", "B×T×D×H", "× the LSTM's time, MKL", "oneDNN", "oneDNN / MKL"]]
    for size in SIZES:
        batch, steps, width, hidden = map(int, size.split("x"))
        data = torch.randn(steps, batch, width, requires_grad=True)
        lstm = nn.LSTM(width, hidden)
        for name in LAYERS:
            layer = make_layer(name, size)
            ways = {on: partial(trained, layer, data, on) for on in (False, True)}
            times = in_turn({**ways, "lstm": partial(trained, lstm, data, False)}, 60, 5)
            figures = [ratio(times[a], times[b])[1] for a, b in ((False, "lstm"), (True, "lstm"), (True, False))]
            rows.append([name, size, *(f"{figure:.2f}" for figure in figures)])
    show(rows, arguments)


def show(rows: list[list[str]], arguments: argparse.Namespace) -> None:
    """Print a table, and add its rows to a file."""
    print(as_table(rows), end="\n\n")
    for row in rows[1:] if arguments.out else []:
        put(dict(zip(rows[0], row)) | {"threads": arguments.threads, "torch": torch.__version__}, arguments.out)


if __name__ == "__main__":
    main()
