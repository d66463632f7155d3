"""F1, parameters, seconds and memory of taggers with an LSTM and with searched cells, at one setting for all.

    python -m benchmarks.taggers.tagging_quality GROUP ... --data-root DATASETS --embeddings EMBEDDING ... --out RUNS

GROUP is a name of GROUPS below, or of one of their runs. Each seed of each run is trained in a folder of its own below
RUNS, goes on where it was stopped, and leaves a line in benchmarks/results/tagging_quality.jsonl; what has one is not
trained again. Groups may run side by side. The table comes from those figures.
"""

import argparse
import functools
import json
import statistics
from pathlib import Path

from benchmarks.json_lines import RESULTS, append, lines_so_far
from flair_nas import random_genotype
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.runs.memory import forget_peak_memory
from flair_nas.tagging.config import TaggerConfig

RANDOM_CELL = random_genotype(1).one_line()
RANDOM_CELL_2 = random_genotype(1, edges_per_node=2).one_line()
WNUT = {"corpus": "wnut_17", "epochs": 15}
CONLL03 = {"corpus": "conll_03", "epochs": 2, "seeds": [1]}
CONLL2000 = {"corpus": "conll_2000", "epochs": 2, "seeds": [1]}
ESS = "benchmarks/genotypes/ess-hand-made.json,carry=gated"  # as it was when these figures were made

NARROW = "init_range=0.04"  # the start of the papers' code, which is meant for H = 850

# group -> run -> settings; the rest is the same for all
GROUPS: dict[str, dict[str, dict]] = {
    "wnut": {
        "wnut/lstm": {**WNUT, "rnn": "lstm"},
        "wnut/i-darts-ptb": {**WNUT, "rnn": "i-darts-ptb,init_range=0.125"},  # 2 / √H
    },
    "wnut-narrow": {
        f"wnut/{name}-narrow": {**WNUT, "rnn": f"{rnn},{NARROW}"}
        for name, rnn in {
            "i-darts-ptb": "i-darts-ptb",
            "darts-v2": "darts-v2",
            "random": RANDOM_CELL,
            "ess": ESS,
        }.items()
    },
    "choices": {
        "wnut/ess-product": {**WNUT, "seeds": [1], "epochs": 6, "rnn": f"{ESS},gate=product,{NARROW}"},
        "wnut/random2-sum": {**WNUT, "seeds": [1], "epochs": 4, "rnn": f"{RANDOM_CELL_2},combine=sum,{NARROW}"},
        "wnut/random2-mean": {**WNUT, "seeds": [1], "epochs": 4, "rnn": f"{RANDOM_CELL_2},combine=mean,{NARROW}"},
    },
    "conll03": {
        "conll03/lstm": {**CONLL03, "rnn": "lstm"},
        "conll03/i-darts-ptb-narrow": {**CONLL03, "rnn": f"i-darts-ptb,{NARROW}"},
    },
    "conll03-ess": {"conll03/ess-narrow": {**CONLL03, "rnn": f"{ESS},{NARROW}"}},
    "conll2000": {
        "conll2000/lstm": {**CONLL2000, "rnn": "lstm"},
        "conll2000/i-darts-ptb-narrow": {**CONLL2000, "rnn": f"i-darts-ptb,{NARROW}"},
    },
    "conll2000-ess": {"conll2000/ess-narrow": {**CONLL2000, "rnn": f"{ESS},{NARROW}"}},
}
# what a default was chosen between: runs of seed 1, compared over the epochs that both have
CHOICES = {
    "gate": ("wnut/ess-narrow", "wnut/ess-product"),
    "combine": ("wnut/random2-mean", "wnut/random2-sum"),
    "init_range": ("wnut/i-darts-ptb", "wnut/i-darts-ptb-narrow"),
}
# the learning rate by the rule of the I-DARTS paper
COMMON = {"hidden_size": 256, "seeds": [1, 2, 3], "anneal_factor": 0.25, "patience": 2}


FILE = RESULTS / "tagging_quality.jsonl"
KEPT = ("dev_f1", "test_f1", "parameters", "rnn_parameters", "peak_memory_mb")


def main() -> None:
    """Runs groups."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"which runs: {', '.join(GROUPS)}")
    parser.add_argument("--data-root", help="folder with the corpora, as Flair lays them out")
    parser.add_argument("--embeddings", nargs="+", help="as flair-nas tag train takes them")
    parser.add_argument("--out", type=Path, default=Path("runs/tagging_quality"), help="folder of all runs")
    arguments = parser.parse_args()
    alone = {name: {name: settings} for runs in GROUPS.values() for name, settings in runs.items()}
    unknown = set(arguments.groups) - {*GROUPS, *alone}
    if unknown or not arguments.groups:
        parser.error(f"groups are {', '.join(GROUPS)}; got {', '.join(unknown) or 'none'}")
    _share_corpora()
    for group in arguments.groups:
        for name, settings in {**GROUPS, **alone}[group].items():
            for seed in settings.get("seeds", COMMON["seeds"]):
                common = {"data_root": arguments.data_root, "embeddings": arguments.embeddings, **COMMON}
                run(name, TaggerConfig(**{**common, **settings, "seeds": [seed]}), arguments.out)


def kept_runs() -> dict[tuple[str, int], dict]:
    """The figures by run and seed."""
    return {(line["name"], line["seed"]): line for line in lines_so_far(FILE)}


def run(name: str, config: TaggerConfig, out: Path) -> None:
    """Trains one seed, unless its figures are there, and writes them."""
    seed = config.seeds[0]
    if (name, seed) in kept_runs():
        return
    from flair_nas import train_taggers

    forget_peak_memory()
    metrics = train_taggers(config, out / name / f"seed{seed}", progress=False)
    kept = {"name": name, "seed": seed} | {key: metrics["seeds"][0][key] for key in KEPT}
    history = (out / name / f"seed{seed}" / f"seed-{seed}" / "history.jsonl").read_text()
    epochs = [json.loads(line) for line in history.splitlines()]
    kept["cpu_seconds_per_epoch"] = epochs[-1]["cpu_seconds"]  # the first one may also compute the embeddings
    kept["history"] = [{key: epoch[key] for key in ("train_loss", "dev_loss", "dev_f1")} for epoch in epochs]
    append(kept, FILE)
    print(name, seed, kept["dev_f1"], kept["test_f1"], flush=True)


def _share_corpora() -> None:
    """Has the runs of this process read each corpus once, so that the embeddings stored with it are computed once."""
    from flair_nas.tagging import training

    training.load_corpus = functools.cache(training.load_corpus)


def table() -> str:
    """The figures, in the order of GROUPS."""
    lines = [
        "| run | seeds | dev F1 | test F1 | parameters | of which recurrent | CPU s per epoch | peak MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    runs = kept_runs()
    for name in (name for group in GROUPS.values() for name in group):
        seeds = [runs[name, seed] for seed in COMMON["seeds"] if (name, seed) in runs]
        if not seeds:
            continue
        scores = [mean_and_spread([seed[part] for seed in seeds]) for part in ("dev_f1", "test_f1")]
        seconds = statistics.mean(seed["cpu_seconds_per_epoch"] for seed in seeds)
        lines.append(
            f"| {name} | {len(seeds)} | {scores[0]} | {scores[1]} | {seeds[0]['parameters']:,} | "
            f"{seeds[0]['rnn_parameters']:,} | {seconds:.0f} | "
            f"{max(seed['peak_memory_mb'] for seed in seeds):,.0f} |"
        )
    return "\n".join(lines)


def choices() -> str:
    """Losses and F1 of the runs that a default was chosen between."""
    lines = [
        "| default | run | epochs | train loss of the last | dev loss of the last | least dev loss | best dev F1 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    runs = kept_runs()
    for default, names in CHOICES.items():
        histories = {name: runs[name, 1]["history"] for name in names if (name, 1) in runs}
        if len(histories) < len(names):
            continue
        epochs = min(map(len, histories.values()))
        for name, history in histories.items():
            kept = history[:epochs]
            lines.append(
                f"| {default} | {name} | {epochs} | {kept[-1]['train_loss']:.4f} | {kept[-1]['dev_loss']:.4f} | "
                f"{min(epoch['dev_loss'] for epoch in kept):.4f} | {max(epoch['dev_f1'] for epoch in kept):.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
