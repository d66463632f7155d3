"""Test F1 of the README's first tagger with several recurrent layers and seeds.

    python benchmarks/first_tagger.py [--rnn LSTM i-darts-ptb ...] [--seeds 1 2 3]

Runs the README's own lines, with another seed and another `rnn_type` put in.
"""

import argparse
import contextlib
import io
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
LAYERS = ["LSTM", "i-darts-ptb", "i-darts-ptb,init_range=0.04", "darts-v2", "ess-ptb"]


def first_lines() -> str:
    """The README's first block of Python."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


def main() -> None:
    """Trains and prints, one line a layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rnn", nargs="+", default=LAYERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments = parser.parse_args()

    import flair

    flair.logger.setLevel("ERROR")
    print("| layer | test F1, mean ± sd | of each seed | seconds |\n| --- | --- | --- | --- |")
    for rnn in arguments.rnn:
        scores, start = [], time.perf_counter()
        for seed in arguments.seeds:
            code, count = re.subn(r"set_seed\(1\)", f"set_seed({seed})", first_lines())
            code, other = re.subn(r'rnn_type="[^"]*"', f'rnn_type="{rnn}"', code)
            assert (count, other) == (1, 1)
            names: dict[str, Any] = {}
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
                os.chdir(folder)
                exec(code, names)
                os.chdir("/")
            scores.append(names["scores"]["test_score"])
        deviation = statistics.stdev(scores) if len(scores) > 1 else float("nan")
        each = ", ".join(f"{score:.3f}" for score in scores)
        seconds = (time.perf_counter() - start) / len(scores)
        print(f"| {rnn} | {statistics.mean(scores):.3f} ± {deviation:.3f} | {each} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
