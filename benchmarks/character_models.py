"""Character models with several layers: bits per character, and F1 of taggers that use them.

    python benchmarks/character_models.py models --text TEXT --out RUNS [--layers lstm small-relu-tanh ...] [--seed 2]
    python benchmarks/character_models.py models --text TEXT --out RUNS --layers lstm --hidden 128  # "lstm, H 128"
    python benchmarks/character_models.py taggers --data-root DATASETS --vectors VECTORS.gensim --out RUNS

`models` trains a forward and a backward model of each layer on the same text, by the preset `small`. Layers have as
many weights as an LSTM of 256 units; those without a matrix of H × H are two on top of one another. `taggers` trains
taggers of WNUT-2017 and CoNLL-2000 with each pair of the first seed, with the small cell as their own layer (or what
--rnn names), by the preset `small-ner`. Both go on where they stopped. The figures go to results/character_models.json.
"""

import argparse
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from json_lines import as_table

from flair_nas.experiments.statistics import mean_and_spread

RESULTS = Path(__file__).parent / "results" / "character_models.json"
LAYERS = ("lstm", "gru", "sru", "mingru", "small-tanh", "small-relu-tanh", "small-relu-tanh,recurrence=elementwise")
LAYERS += ("i-darts-ptb", "ess-ptb")
HIDDEN, EMBEDDING = 256, 64
TWO = ("sru", "mingru")
SEEDS = [1, 2, 3]
CORPORA = {"wnut_17": {}, "conll_2000": {"epochs": 10}}
"""Corpora of taggers, each with settings other than the preset's."""


def hidden_size(layer: str) -> int:
    """The hidden size at which a layer has as many weights as the LSTM, as nearly as possible."""
    from flair.models.language_model import create_recurrent_layer

    def weights(name: str, hidden: int) -> int:
        with torch.device("meta"):
            layer = create_recurrent_layer(name, EMBEDDING, hidden, 1 + (name in TWO))[0]
        return sum(parameter.numel() for parameter in layer.parameters())

    wanted = weights("lstm", HIDDEN)
    return min(range(16, 1024, 2), key=lambda hidden: abs(weights(layer, hidden) - wanted))


def folder_of(out: Path, layer: str) -> Path:
    """The run folder of a layer's models."""
    return out / layer.translate(str.maketrans(",=", "--", " "))


def train_models(arguments: argparse.Namespace) -> None:
    """Train both models of each layer, and keep their figures."""
    from flair_nas.character_model.config import CharacterModelConfig
    from flair_nas.character_model.training import train_character_models
    from flair_nas.settings.resolve import resolve

    for layer in arguments.layers:
        hidden = arguments.hidden or hidden_size(layer)
        flags = {"text": arguments.text, "rnn": layer, "hidden_size": hidden, "direction": "both"}
        flags["layers"] = 1 + (layer in TWO)
        flags |= {"split_size": 500_000, "epochs": arguments.epochs, "embedding_size": EMBEDDING}
        flags |= {"device": arguments.device, "seed": arguments.seed}
        config = resolve(CharacterModelConfig, kind="character_model", preset="small", flags=flags)
        name = layer if arguments.hidden is None else f"{layer}, H {hidden}"
        folder = folder_of(arguments.out, name if arguments.seed == 1 else f"{name}-seed{arguments.seed}")
        figures = train_character_models(config, folder)
        if arguments.seed == 1:
            curves = {way: read_curve(folder / way) for way in figures}
            keep(name, {"hidden_size": config.hidden_size, **figures, "curves": curves})
        else:
            bits = {way: of["test_bits"] for way, of in figures.items()}
            keep(name, {f"seed {arguments.seed}": {**bits, "device": arguments.device}})


def read_curve(folder: Path) -> list[tuple[float, float]]:
    """CPU seconds of training and bits per character on valid, after each split."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds, curve = 0.0, []
    for split in (split for line in lines for split in line["splits"]):
        seconds += split["cpu_seconds"]
        curve.append((round(seconds, 1), round(split["valid_bits"], 4)))
    return curve


def train_taggers(arguments: argparse.Namespace) -> None:
    """Train taggers with each pair of models, and keep their F1."""
    from flair_nas.settings.resolve import resolve
    from flair_nas.tagging.config import TaggerConfig
    from flair_nas.tagging.training import train_taggers

    for corpus, layer in itertools.product(arguments.corpora, arguments.layers):
        models = [f"flair:{folder_of(arguments.out, layer) / way / 'model.pt'}" for way in ("forward", "backward")]
        flags: dict[str, Any] = {"embeddings": [f"word:{arguments.vectors}", *models], "seeds": SEEDS}
        flags |= {"data_root": arguments.data_root, "device": "cpu", "corpus": corpus, **CORPORA[corpus]}
        flags |= {"rnn": arguments.rnn} if arguments.rnn else {}
        key = f"{corpus}, {arguments.rnn} on top" if arguments.rnn else corpus
        config = resolve(TaggerConfig, kind="tagging", preset="small-ner", flags=flags)
        metrics = train_taggers(config, folder_of(arguments.out, f"{key}-{layer}"))
        keep(layer, {key: [round(seed["test_f1"], 2) for seed in metrics["seeds"]]})


def keep(layer: str, figures: dict[str, Any]) -> None:
    """Add figures of a layer to those that are kept."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept[layer] = {**kept.get(layer, {}), **figures}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table() -> str:
    """The kept figures as Markdown, bits of all seeds; equal seconds are those that the LSTM takes on a CPU."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    limits = {way: curve[-1][0] for way, curve in kept["lstm"]["curves"].items()}
    found = dict.fromkeys(key for of in kept.values() for key in of)
    corpora = [key for key in found if key.partition(",")[0] in CORPORA]
    heads = ["layer", "H", "weights", "test bits, forward", "backward", "valid bits in the LSTM's CPU time"]
    rows = [[*heads, "CPU s, × LSTM", *(f"test F1, {corpus}" for corpus in corpora)]]
    for layer, of in kept.items():
        further = [figures for name, figures in of.items() if name.startswith("seed ")]
        cells = [layer, str(of["hidden_size"]), f"{of['forward']['rnn_parameters']:,}"]
        first = {way: of[way]["test_bits"] for way in limits}
        cells += [", ".join(f"{bits[way]:.3f}" for bits in [first, *further]) for way in limits]
        cells += cost(of["curves"], limits) if of["forward"]["device"] == "cpu" else ["-", "-"]
        cells += [mean_and_spread(of[corpus]) if corpus in of else "-" for corpus in corpora]
        rows.append(cells)
    return as_table(rows)


def cost(curves: dict[str, list[tuple[float, float]]], limits: dict[str, float]) -> list[str]:
    """Bits on valid after at most as many CPU seconds as the LSTM takes, and seconds in all, × the LSTM's."""
    at_equal = [min(bits for seconds, bits in curves[way] if seconds <= limits[way]) for way in limits]
    ratio = statistics.mean(curves[way][-1][0] / limits[way] for way in limits)
    return [" / ".join(f"{bits:.3f}" for bits in at_equal), f"{ratio:.2f}"]


def main() -> None:
    """Runs one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("models", "taggers"))
    parser.add_argument("--out", type=Path, required=True, help="folder for all runs")
    parser.add_argument("--layers", nargs="+", default=LAYERS)
    parser.add_argument("--text", help="of models")
    parser.add_argument("--epochs", type=int, default=3, help="of models (default: 3)")
    parser.add_argument("--device", default="cpu", help="of models (default: cpu; seconds of others are not compared)")
    parser.add_argument("--hidden", type=int, help="of models: H (default: as many weights as an LSTM of 256)")
    parser.add_argument("--seed", type=int, default=1, help="of models (default: 1)")
    parser.add_argument("--corpora", nargs="+", default=CORPORA, help="of taggers (default: all)")
    parser.add_argument("--data-root", help="of taggers")
    parser.add_argument("--rnn", help="of taggers: their own layer (default: the preset's)")
    parser.add_argument("--vectors", help="of taggers: word vectors")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    {"models": train_models, "taggers": train_taggers}[arguments.part](arguments)


if __name__ == "__main__":
    main()
