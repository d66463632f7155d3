"""Figures of small cells: their taggers, and the time of their layers.

    python -m benchmarks.tables run small_cells --data-root DATASETS --out RUNS \\
        --embeddings word:VECTORS.gensim flair:FORWARD.pt flair:BACKWARD.pt
    python -m benchmarks.tables keep small_cells RUNS
    python -m benchmarks.taggers.small_cells --runs RUNS  # keeps the CPU seconds of the taggers' epochs
    python -m benchmarks.taggers.small_cells --out benchmarks/results/small_cells.jsonl  # 20 minutes, a quiet machine

`times`, `epochs` and `draw` make tables and a picture of the docs from that file (`benchmarks/fill.py`).
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from benchmarks.json_lines import lines_in, replace_lines
from benchmarks.tables.kept import file_of, kept
from benchmarks.tables.showing import make_panels
from flair_nas.drawing.figures import Point, find_front
from flair_nas.storage.files import whole_file

RESULTS = file_of("small_cells")
ELEMENTWISE = ",recurrence=elementwise"
NAMES = ("s0", "tanh0", "relu0", "relu0-tanh1", "relu0-relu1-tanh2-relu3", "darts-v1", "gru")
NAMES += (f"s0{ELEMENTWISE}", f"tanh0{ELEMENTWISE}", f"relu0-tanh1{ELEMENTWISE}", "sru", "mingru", "minlstm")
FEW = ("tanh0", "relu0-tanh1", "darts-v1", "gru", f"tanh0{ELEMENTWISE}", f"relu0-tanh1{ELEMENTWISE}")
TAGGER = "32xwnutx612x256"  # as in the tables of taggers
SIZES = {
    TAGGER: "tagger, ragged",
    "32x35x256": "32 × 35, 256",
    "64x35x850": "64 × 35, 850",
    "8x250x256": "8 × 250, 256",
    "1x20x256": "1 × 20, 256",
}


def measured(part: str) -> list[dict]:
    """The times or peaks that were measured."""
    return [line for line in lines_in(RESULTS) if line.get("part") == part]


def ratios() -> dict[tuple, float]:
    """Times of training and inference by mode, threads, size and layer, in times of the LSTM's."""
    rows = measured("cases")
    return {(r["mode"], r["threads"], r["size"], r["genotype"]): r["ratios"]["fast/lstm"][1] for r in rows}


def memory() -> str:
    """What training steps add to the peak of a fresh process, as Markdown."""
    peaks = {(row["genotype"], row["size"]): row["peak_mb"] for row in measured("memory") if row["kernels"] == "auto"}
    sizes = list(dict.fromkeys(size for _, size in peaks))
    lines = [f"| layer | {' | '.join(size.replace('x', ' × ') for size in sizes)} |", f"| --- |{' --- |' * len(sizes)}"]
    for name in dict.fromkeys(name for name, _ in peaks):
        cells = [f"{peaks[name, size]:.0f} MB ({peaks[name, size] / peaks['lstm', size]:.2f})" for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def times() -> str:
    """Times of layers, relative to an LSTM of the same size, as Markdown."""
    found = ratios()
    lines = []
    for threads in sorted({key[1] for key in found}):
        words = f"Training step, {threads} thread{'s' * (threads > 1)} (inference in brackets)"
        lines += [words, "", f"| layer | {' | '.join(SIZES.values())} |", f"| --- |{' --- |' * len(SIZES)}"]
        for name in (name for name in NAMES if any(key[1] == threads and key[3] == name for key in found)):
            cells = []
            for size in SIZES:
                training, inference = (found.get((mode, threads, size, name)) for mode in ("training", "inference"))
                cells.append("-" if training is None else f"{training:.2f}")
                cells[-1] += "" if inference is None else f" ({inference:.2f})"
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def read_epochs(runs: Path) -> dict[str, list[float]]:
    """Median CPU seconds of an epoch by layer, one for each run of a finished or unfinished table."""
    ledger = json.loads((runs / "ledger.json").read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for cell, names in ledger["plan"]["cells"].items():
        for history in (path for name in names for path in (runs / "runs" / name).glob("seed-*/history.jsonl")):
            seconds = [json.loads(line)["cpu_seconds"] for line in history.read_text(encoding="utf-8").splitlines()]
            found.setdefault(cell.split(" / ")[0], []).append(round(statistics.median(seconds), 2))
    return found


def epoch_seconds() -> dict[str, list[float]]:
    """The kept figures of `read_epochs`."""
    (line,) = (line for line in lines_in(RESULTS) if "epochs" in line)
    return line["epochs"]


def epochs() -> str:
    """CPU seconds of a tagger's epoch by layer, as Markdown."""
    found = epoch_seconds()
    means = {name: statistics.mean(seconds) for name, seconds in found.items() if "rate" not in name}
    lines = ["| layer | runs | CPU seconds an epoch | × LSTM |", "| --- | --- | --- | --- |"]
    for name, mean in means.items():
        runs, spread = len(found[name]), f"{min(found[name]):.1f} to {max(found[name]):.1f}"
        lines.append(f"| {name} | {runs} | {mean:.1f} ({spread}) | {mean / means['LSTM']:.2f} |")
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Draws test F1 on WNUT-2017 against the time of a layer's training step on ragged batches, on one thread."""
    times = {key[3]: ratio for key, ratio in ratios().items() if key[:3] == ("training", 1, TAGGER)}
    table, ledger = kept("small_cells")
    (panel,) = make_panels(table, ledger).values()
    points = []
    for row in table.rows:
        figures, spec = panel.get(row.name, []), row.rnn
        if len(figures) > 1 and (spec == "lstm" or spec in times) and "rate" not in row.name:
            points.append(Point(times.get(spec, 1.0), statistics.mean(figures), row.name))
    front = find_front(points, True)
    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([p.time for p in front], [p.figure for p in front], "--", color="#0072b2", linewidth=1)
        for point in points:
            is_baseline = point.text == "LSTM"
            colour = "#d55e00" if is_baseline else "#0072b2" if point in front else "#777777"
            axes.plot(point.time, point.figure, "s" if is_baseline else "o", color=colour, markersize=6)
            axes.annotate(point.text, point[:2], (5, 4), textcoords="offset points", fontsize=8, color=colour)
        axes.set(xlabel="time of the layer's training step, in times of the LSTM's", ylabel="test F1, mean")
        axes.margins(x=0.15)
        axes.grid(alpha=0.3)
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def main() -> None:
    """Measures the layers beside LSTMs of the same size, or reads the epochs of taggers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", metavar="FILE", help="measure; JSON lines are added to it")
    what.add_argument("--runs", metavar="DIR", type=Path, help="read the epochs of the runs of the table")
    arguments = parser.parse_args()
    if arguments.runs:
        replace_lines(RESULTS, [{"epochs": read_epochs(arguments.runs)}], lambda line: "epochs" in line)
        return
    for part, threads, names in (("cases", "1", NAMES), ("cases", "2", FEW), ("memory", "1", FEW)):
        command = [sys.executable, "-m", "benchmarks.speed.recurrent_speed", "--part", part, "--threads", threads]
        command += ["--precision", "float32", "--seconds", "1", "--out", arguments.out]
        subprocess.run([*command, "--genotypes", *names, "--sizes", *SIZES], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
