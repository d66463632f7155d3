"""Figures of small cells: their taggers, and the time of their layers.

    flair-nas tables run benchmarks/results/small_cells/table.yaml --data-root DATASETS --out RUNS \\
        --embeddings word:VECTORS.gensim flair:FORWARD.pt flair:BACKWARD.pt
    cp RUNS/ledger.json benchmarks/results/small_cells/
    python benchmarks/small_cells.py --out benchmarks/results/small_cells/speed.jsonl  # on a quiet machine: 10 minutes

`times` and `draw` make a table and a picture of docs/figures.md from these files (`benchmarks/fill.py`).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "small_cells"
ELEMENTWISE = ",recurrence=elementwise"
NAMES = ("s0", "tanh0", "relu0-tanh1", "relu0-relu1-tanh2-relu3", "darts-v1", "gru")
NAMES += (f"s0{ELEMENTWISE}", f"tanh0{ELEMENTWISE}", f"relu0-tanh1{ELEMENTWISE}", "sru", "mingru")
TAGGER = "32xwnutx612x256"  # as in the tables of taggers
SIZES = {
    TAGGER: "tagger, ragged",
    "32x35x256": "32 × 35, 256",
    "64x35x850": "64 × 35, 850",
    "8x250x256": "8 × 250, 256",
    "1x20x256": "1 × 20, 256",
}


def ratios() -> dict[tuple, float]:
    """Times of training and inference by mode, threads, size and layer, in times of the LSTM's, from speed.jsonl."""
    lines = (RESULTS / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["part"] == "cases"]
    return {(r["mode"], r["threads"], r["size"], r["genotype"]): r["ratios"]["fast/lstm"][1] for r in rows}


def times() -> str:
    """Times of layers, relative to an LSTM of the same size, as Markdown."""
    found = ratios()
    lines = []
    for threads in sorted({key[1] for key in found}):
        words = f"Training step, {threads} thread{'s' * (threads > 1)} (inference in brackets)"
        lines += [words, "", f"| layer | {' | '.join(SIZES.values())} |", f"| --- |{' --- |' * len(SIZES)}"]
        for name in NAMES:
            cells = []
            for size in SIZES:
                training, inference = (found.get((mode, threads, size, name)) for mode in ("training", "inference"))
                cells.append("-" if training is None else f"{training:.2f}")
                cells[-1] += "" if inference is None else f" ({inference:.2f})"
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Draws test F1 on WNUT-2017 against the time of a layer's training step on ragged batches, on one thread."""
    import statistics

    import fill

    from flair_nas.drawing.charts import Point, draw_seconds
    from flair_nas.tables.showing import make_panels

    times = {key[3]: ratio for key, ratio in ratios().items() if key[:3] == ("training", 1, TAGGER)}
    table, ledger = fill.kept("small_cells")
    (panel,) = make_panels(table, ledger).values()
    points = []
    for row in table.rows:
        figures, spec = panel.get(row.name, []), row.rnn
        if len(figures) > 1 and (spec == "lstm" or spec in times) and "rate" not in row.name:
            points.append(Point(row.name, times.get(spec, 1.0), statistics.mean(figures), spec == "lstm"))
    draw_seconds(points, path, ("time of the layer's training step, in times of the LSTM's", "test F1, mean"), True)


def main() -> None:
    """Measures the layers beside LSTMs of the same size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="FILE", help="JSON lines are added to it")
    arguments = parser.parse_args()
    command = [sys.executable, str(HERE / "recurrent_speed.py"), "--part", "cases", "--precision", "float32"]
    command += ["--out", arguments.out, "--seconds", "1", "--genotypes", *NAMES, "--sizes", *SIZES]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
