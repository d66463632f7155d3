"""Test F1 of the README's first tagger with several recurrent layers and seeds.

    python -m benchmarks.taggers.first_tagger [--rnn LSTM small-relu-tanh ...] [--seeds 1 2 3] [--out FILE]

Runs the README's own lines, with another seed and another `rnn_type` put in. --out takes the scores, as JSON; from
those of benchmarks/results/first_tagger.json is what the README says of them.
"""

import argparse
import contextlib
import io
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from flair_nas.experiments.statistics import mean_and_spread

README = Path(__file__).parents[2] / "README.md"
RESULTS = Path(__file__).parents[1] / "results" / "first_tagger.json"
LAYERS = ["small-relu-tanh", "LSTM"]


def first_lines() -> str:
    """The README's first block of Python."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


def sentence() -> str:
    """What to expect of the README's lines, in words."""
    found = json.loads(RESULTS.read_text())
    own, *others = (f'{mean_and_spread(scores)} with `rnn_type="{rnn}"`' for rnn, scores in found["scores"].items())
    seeds = f"{found['seeds'][0]} to {found['seeds'][-1]}"
    return f"What to expect over the seeds {seeds}: test F1 {own}; {', '.join(others)}."


def main() -> None:
    """Trains and prints, one line a layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rnn", nargs="+", default=LAYERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--out", type=Path, help="file for the scores")
    arguments = parser.parse_args()
    out = arguments.out and arguments.out.resolve()
    found: dict[str, list[float]] = {}

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
        found[rnn] = [round(score, 4) for score in scores]
        each = ", ".join(f"{score:.3f}" for score in scores)
        seconds = (time.perf_counter() - start) / len(scores)
        print(f"| {rnn} | {mean_and_spread(scores)} | {each} | {seconds:.0f} |", flush=True)
    if out:
        out.write_text(json.dumps({"seeds": arguments.seeds, "scores": found}) + "\n")


if __name__ == "__main__":
    main()
