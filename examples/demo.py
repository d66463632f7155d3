"""The main job from end to end on bundled data: search a cell on text, train taggers, reload one in a new process, tag.

    python examples/demo.py [--out runs/demo] [--search-epochs 24] [--epochs 12] [--seeds 1 2 3]

A local search that trains some twenty cells on 17,000 words gives a genotype; two taggers, the same but for the
recurrent layer, then learn to find names: one with Flair's LSTM, one with the cell that was found, both from the same
seeds. Text and corpus are tiny (309 training sentences), so perplexity and F1 tell that everything works and little
else; docs/results.md has figures that do. Takes under four minutes on 2 CPU cores, and no network.
"""

import argparse
import math
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import flair
import torch

from flair_nas import SearchConfig, SearchResult, TaggerConfig, search_genotype, train_taggers
from flair_nas.settings.resolve import resolve

SENTENCE = "Dr Helen Marsh of Northgate Rail spoke in Leeds on Sunday ."


def main() -> None:
    """Search, train both taggers, print the figures, and tag a sentence in a new process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the runs; what is there goes")
    parser.add_argument("--search-epochs", type=int, default=24, help="about one cell is trained in each")
    parser.add_argument("--epochs", type=int, default=12, help="of each tagger")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of each tagger; the search has one")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    flair.logger.setLevel("WARNING")
    torch.set_num_threads(1)  # with matrices this small, a second thread costs more than it gives

    found = search_cell(arguments.out / "search", arguments.search_epochs)
    genotype = found.out / "genotype.json"
    rows = [train_tagger(name, rnn, arguments.out / name, arguments.epochs, arguments.seeds)
            for name, rnn in (("lstm", "lstm"), ("found", str(genotype)))]  # fmt: skip

    print(f"\n{'recurrent layer':<16} {'dev F1':>12} {'test F1':>12} {'parameters':>11} {'seconds':>8}")
    print(*rows, sep="\n")
    if len(arguments.seeds) == 1:
        print("One seed and 309 sentences: differences of several points are chance. With --seeds 1 2 3 the LSTM had a")
        print("test F1 of 74.0 ± 4.8 and the found cell 73.0 ± 2.6. Real corpora: docs/results.md.")

    print("\nthe tagger with the cell that was found, reloaded in a new process:", flush=True)
    predict = ["-m", "flair_nas", "tag", "predict", "--model", str(arguments.out / "found"), "--tokenized"]
    subprocess.run([sys.executable, *predict, SENTENCE], check=True)

    path = shlex.quote(str(genotype))
    print(f"""
Next (activate the environment first: . .venv/bin/activate): which layer is the best on your own corpus, this cell, a
published one or the LSTM?
  flair-nas tune --corpus my_corpus/ --vary layer rate --candidates {path} small-relu-tanh \\
      --budget 1h --out runs/tune
A cell from text of your own, which takes longer and tells more:
  flair-nas search --preset local-search-small --text my_text/ --out runs/my-search
All of it in a page of Python: examples/search_then_tag.py""")


def search_cell(out: Path, epochs: int) -> SearchResult:
    """Search a cell on the bundled text, and print how it went."""
    print("searching a cell on the bundled text, well under a minute ...", flush=True)
    # so small a model is no faster on a GPU
    small = {"text": "demo", "hidden_size": 32, "epochs": epochs, "device": "cpu"}
    config = resolve(SearchConfig, kind="search", preset="local-search-small", flags=small)
    start, start_cpu = time.perf_counter(), time.process_time()
    found = search_genotype(config, out, progress=sys.stderr.isatty())
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu

    print("epoch  valid perplexity  best cell so far")
    for line in found.history:
        print(f"{line['epoch']:>5} {line['dev_perplexity'] or math.inf:>17.1f}  {line['genotype']}")
    print(f"found: {found.genotype.one_line()}")
    print(f"  {found.verdict}")
    print(f"  in {found.out / 'genotype.json'}, after {seconds:.0f} s ({cpu:.0f} s of CPU)\n", flush=True)
    return found


def train_tagger(name: str, rnn: str, out: Path, epochs: int, seeds: list[int]) -> str:
    """Trains a tagger with each seed; gives its row of the table."""
    print(f"training a tagger with {rnn}, half a minute on an idle core ...", flush=True)
    config = TaggerConfig(
        corpus="demo",
        rnn=rnn,
        embeddings=["english", "char"],
        hidden_size=64,
        batch_size=8,
        locked_dropout=0.2,
        patience=1,
        epochs=epochs,
        seeds=seeds,
    )
    start = time.perf_counter()
    metrics = train_taggers(config, out, progress=sys.stderr.isatty())
    seconds = time.perf_counter() - start
    means = [metrics["summary"][part] for part in ("dev_f1", "test_f1")]
    dev, test = (f"{mean['mean']:.2f}" + (f" ± {mean['sd']:.2f}" if len(seeds) > 1 else "") for mean in means)
    return f"{name:<16} {dev:>12} {test:>12} {metrics['parameters']:>11,} {seconds:>8.1f}"


if __name__ == "__main__":
    main()
