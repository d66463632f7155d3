"""How sure a selection is of a winner that is none: judged by the seeds that chose it, and by fresh ones.

    python -m benchmarks.taggers.select_judges [--trials 4000]

The runs are those of all searched and drawn cells of one size in a kept table of taggers, wnut-small:
what their seeds found in each sentence of test, and their F1 on dev. In each trial runs are dealt out at random, so
that no layer is better than another: five layers have three seeds each, one of them is the layer to beat, the best of
the others on dev is the challenger, and both have further seeds. Counted is how often the probability that the
challenger is better is 0.95 or more, which it should be in one of twenty, and what is said that it is ahead by.
"""

import argparse
import json

import numpy as np

from benchmarks.json_lines import lines_in, replace_lines
from benchmarks.tables.kept import file_of, kept
from flair_nas.experiments.counts import f1, unpack_counts
from flair_nas.experiments.statistics import compare

TABLE = "wnut-small"
WEIGHTS = 2_985_984  # of a cell of eight nodes at H = 256
LAYERS, SEEDS, MOST_FRESH, SURE = 5, 3, 5, 0.95


def find_runs() -> tuple[np.ndarray, np.ndarray]:
    """The best F1 on dev of each run, [runs], and what was found in each sentence of test, [runs, sentences, 3]."""
    cells = [run for run in kept(TABLE)[1].runs.values() if run.get("parameters") == WEIGHTS and "counts" in run]
    return np.array([max(run["dev"]) for run in cells]), np.stack([unpack_counts(run["counts"]) for run in cells])


def trial(dev: np.ndarray, counts: np.ndarray, draw: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return probability and gain of a challenger that is no better, by who judges."""
    dealt = draw.permutation(len(dev))
    of_layers = dealt[: LAYERS * SEEDS].reshape(LAYERS, SEEDS)
    rest = dealt[LAYERS * SEEDS :]
    challenger = 1 + int(dev[of_layers[1:]].mean(1).argmax())
    judges = {"the three that chose": (of_layers[challenger], of_layers[0])}
    for fresh in (SEEDS, MOST_FRESH):
        judges[f"{fresh} fresh ones"] = rest[:fresh], rest[fresh : 2 * fresh]
    found = {}
    for who, both in judges.items():
        gain = compare(*(counts[of] for of in both), f1)
        found[who] = gain.probability, gain.value
    return found


def table() -> str:
    """The kept figures."""
    (found,) = (line for line in lines_in(file_of(TABLE)) if "judges" in line)
    lines = ["| judged by | probability of 0.95 or more | mean gain, in points |", "| --- | --- | --- |"]
    lines += [f"| {who} | {share:.1f} % of trials | {gain:+.2f} |" for who, (share, gain) in found["judges"].items()]
    return "\n".join([*lines, "", f"{found['trials']:,} trials on {found['runs']} runs."])


def main() -> None:
    """Runs the trials, and keeps their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000, help="how many (4000)")
    arguments = parser.parse_args()
    dev, counts = find_runs()
    draw = np.random.default_rng(1)
    trials = [trial(dev, counts, draw) for _ in range(arguments.trials)]
    judges = {}
    for who in trials[0]:
        found = np.array([of[who] for of in trials])
        judges[who] = [round(100 * float(np.mean(found[:, 0] >= SURE)), 1), round(float(found[:, 1].mean()), 2)]
    figures = {"trials": len(trials), "runs": len(dev), "judges": judges}
    replace_lines(file_of(TABLE), [figures], lambda line: "judges" in line)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
