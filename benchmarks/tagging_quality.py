"""F1, parameters, seconds and memory of taggers with an LSTM and with searched cells, at one setting for all.

    python benchmarks/tagging_quality.py GROUP --data-root DATASETS --embeddings EMBEDDING ... --out RUNS
    python benchmarks/tagging_quality.py --table --out RUNS

GROUP is a name of GROUPS below. Runs that are done are not repeated, and a stopped one goes on where it was. Each run
appends nothing and overwrites nothing but its own folder, so groups may run side by side. The table comes from the
runs' metrics.json.
"""

import argparse
import json
import os
from pathlib import Path

from flair_nas import random_genotype
from flair_nas.tagging.config import TaggerConfig

RANDOM_CELL = random_genotype(1).one_line()
RANDOM_CELL_2 = random_genotype(1, edges_per_node=2).one_line()
WNUT = {"corpus": "wnut_17", "epochs": 8}
CONLL03 = {"corpus": "conll_03", "epochs": 4, "seeds": [1]}
CONLL2000 = {"corpus": "conll_2000", "epochs": 4, "seeds": [1]}
ESS = "ess-hand-made"

# group -> run -> settings; the rest is the same for all
GROUPS: dict[str, dict[str, dict]] = {
    "wnut": {
        "wnut/lstm": {**WNUT, "rnn": "lstm"},
        "wnut/i-darts-ptb": {**WNUT, "rnn": "i-darts-ptb"},
        "wnut/darts-v2": {**WNUT, "rnn": "darts-v2"},
        "wnut/random": {**WNUT, "rnn": RANDOM_CELL},
    },
    "wnut-ess": {"wnut/ess": {**WNUT, "rnn": ESS}},
    "choices": {
        "wnut/ess-product": {**WNUT, "seeds": [1], "rnn": f"{ESS},gate=product"},
        "wnut/random2-sum": {**WNUT, "seeds": [1], "rnn": f"{RANDOM_CELL_2},combine=sum"},
        "wnut/random2-mean": {**WNUT, "seeds": [1], "rnn": f"{RANDOM_CELL_2},combine=mean"},
        "wnut/i-darts-ptb-wide": {**WNUT, "seeds": [1], "rnn": "i-darts-ptb,init_range=0.0625"},
    },
    "conll03": {f"conll03/{rnn}": {**CONLL03, "rnn": rnn} for rnn in ("lstm", "i-darts-ptb", ESS)},
    "conll2000": {f"conll2000/{rnn}": {**CONLL2000, "rnn": rnn} for rnn in ("lstm", "i-darts-ptb", ESS)},
}
# the I-DARTS rule for the learning rate, with less patience, as there are few epochs
COMMON = {"hidden_size": 256, "seeds": [1, 2, 3], "anneal_factor": 0.25, "patience": 1}


def main() -> None:
    """Runs a group, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="*", choices=[*GROUPS, []], help="which runs")
    parser.add_argument("--data-root", help="folder with the corpora, as Flair lays them out")
    parser.add_argument("--embeddings", nargs="+", help="as flair-nas tag train takes them")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--table", action="store_true", help="print the figures of the runs that are done")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.out))
        return
    from flair_nas.tagging.training import train_taggers

    for group in arguments.group:
        for name, settings in GROUPS[group].items():
            settings = {**COMMON, **settings, "data_root": arguments.data_root, "embeddings": arguments.embeddings}
            metrics = train_taggers(TaggerConfig(**settings), arguments.out / name, progress=False)
            print(name, json.dumps(metrics["summary"]), flush=True)


def table(out: Path) -> str:
    """The figures of the finished runs, in the order of GROUPS."""
    lines = [
        "| run | seeds | dev F1 | test F1 | parameters | of which recurrent | CPU s per epoch | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in (name for runs in GROUPS.values() for name in runs):
        path = out / name / "metrics.json"
        if not path.exists():
            continue
        metrics = json.loads(path.read_text(encoding="utf-8"))
        figures = []
        for part in ("dev_f1", "test_f1"):
            figure = metrics["summary"][part]
            figures.append(f"{figure['mean']:.2f}" + (f" ± {figure['sd']:.2f}" if figure["sd"] is not None else ""))
        seconds = metrics["summary"].get("cpu_seconds_per_epoch", {}).get("mean")
        lines.append(
            f"| {name} | {len(metrics['seeds'])} | {figures[0]} | {figures[1]} | {metrics['parameters']:,} | "
            f"{metrics['rnn_parameters']:,} | {f'{seconds:.0f}' if seconds else '-'} | "
            f"{metrics['peak_memory_mb']:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
