"""The main job from end to end on the bundled corpus: train, save, reload in a new process, tag. Takes a few minutes.

    python examples/demo.py [--out runs/demo] [--epochs 12]

Three taggers, the same but for the recurrent layer: Flair's LSTM, a cell that I-DARTS found on language modelling, and
that cell with ESS's gates between time steps. The corpus has 309 training sentences, so F1 is low and its differences
mean nothing; docs/figures.md has those that do.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import flair
import torch

from flair_nas import TaggerConfig, train_taggers

LAYERS = ("lstm", "i-darts-ptb", "ess-hand-made")
SENTENCE = "Dr Helen Marsh of Northgate Rail opened the Harvest Festival in Leeds on Sunday ."


def main() -> None:
    """Trains the three taggers, prints the table, and tags a sentence in a new process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the runs; what is there goes")
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    flair.logger.setLevel("WARNING")
    torch.set_num_threads(1)  # with matrices this small, a second thread costs more than it gives

    rows = []
    for rnn in LAYERS:
        print(f"training a tagger with {rnn} ...", flush=True)
        config = TaggerConfig(
            corpus="demo",
            rnn=rnn,
            embeddings=["one-hot", "char"],
            hidden_size=64,
            batch_size=8,
            locked_dropout=0.2,
            learning_rate=0.3,
            patience=1,
            epochs=arguments.epochs,
        )
        start = time.perf_counter()
        metrics = train_taggers(config, arguments.out / rnn, progress=sys.stderr.isatty())
        rows.append((rnn, metrics, time.perf_counter() - start))

    print(f"\n{'recurrent layer':<16} {'dev F1':>7} {'test F1':>8} {'parameters':>11} {'seconds':>8}")
    for rnn, metrics, seconds in rows:
        dev, test = (metrics["summary"][part]["mean"] for part in ("dev_f1", "test_f1"))
        print(f"{rnn:<16} {dev:>7.2f} {test:>8.2f} {metrics['parameters']:>11,} {seconds:>8.1f}")

    print("The corpus is tiny: the differences mean nothing. docs/figures.md has figures on real corpora.")

    for rnn in LAYERS[1:]:
        command = [
            sys.executable,
            "-m",
            "flair_nas",
            "tag",
            "predict",
            "--model",
            str(arguments.out / rnn),
            "--tokenized",
        ]
        print(f"\n{rnn}, reloaded in a new process: ", end="", flush=True)
        subprocess.run([*command, SENTENCE], check=True)


if __name__ == "__main__":
    main()
