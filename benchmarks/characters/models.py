"""Character models with several layers: bits per character, time, and F1 of taggers that use them.

    python -m benchmarks.characters.models models --text TEXT --out RUNS [--layers lstm "random 1" ...] [--seed 2]
    python -m benchmarks.characters.models models --text TEXT --out RUNS --layers lstm --hidden 128  # "lstm, H 128"
    python -m benchmarks.characters.models taggers --data-root DATASETS --vectors VECTORS.gensim --out RUNS [--seed 2]
    python -m benchmarks.characters.models speed --text TEXT     # on a quiet machine

`models` trains a forward and a backward model of each layer on the same text, by the preset `small`. Layers have as
many weights as an LSTM of 256 units; those without a matrix of H × H are two on top of one another. `taggers` trains
three taggers of WNUT-2017 and CoNLL-2000 with each pair of models of a seed, with the small cell as their own layer (or
what --rnn names), by the preset `small-ner`. Both go on where they stopped. `speed` times all layers that have figures,
new ones in turn, as a training step and as embeddings. The figures go to results/character_models.json.
"""

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flair
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import FlairEmbeddings
from flair.models import LanguageModel
from torch.nn import functional

from benchmarks.json_lines import as_table
from benchmarks.speed.recurrent_speed import in_turn, ratio
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.evaluation import score_ids
from flair_nas.embedding.character_model.text import Splits, load_characters
from flair_nas.embedding.character_model.training import train_character_models
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.genotype.sampling import random_genotype
from flair_nas.language_model.model import detach
from flair_nas.settings.resolve import resolve
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.character_models import load_character_model
from flair_nas.tagging.training import train_taggers

RESULTS = Path(__file__).parents[1] / "results" / "character_models.json"
LAYERS = ("lstm", "gru", "sru", "mingru", "small-tanh", "small-relu-tanh", "small-relu-tanh,recurrence=elementwise")
LAYERS += ("ess-ptb", "i-darts-ptb", "random 1", "random 2", "searched on characters")
SOURCES = {f"random {seed}": random_genotype(seed).one_line() for seed in (1, 2)}
SOURCES["searched on characters"] = "-".join(f"identity{tail}" for tail in (0, 0, 0, 0, 0, 1, 0, 0))
"""Layer specs of rows with another name; the last one was found by the preset gdas-char-small with seed 1."""
HIDDEN, EMBEDDING = 256, 64
TWO = ("sru", "mingru")
SEEDS = [1, 2, 3]
"""Of taggers."""
SETTLING = (2.5,) * 4 + (0.625,) * 4
"""Learning rates of the last splits, 10 / 4 and 10 / 16."""
WAYS = ("forward", "backward")
CORPORA = {"wnut_17": {}, "conll_2000": {"epochs": 10}}
"""Corpora of taggers, each with settings other than the preset's."""


def hidden_size(layer: str) -> int:
    """The hidden size at which a layer has as many weights as the LSTM, as nearly as possible."""
    from flair.models.language_model import create_recurrent_layer  # flair_nas has wrapped it by now

    def weights(name: str, hidden: int) -> int:
        with torch.device("meta"):
            layer = create_recurrent_layer(SOURCES.get(name, name), EMBEDDING, hidden, 1 + (name in TWO))[0]
        return sum(parameter.numel() for parameter in layer.parameters())

    wanted = weights("lstm", HIDDEN)
    return min(range(16, 1024, 2), key=lambda hidden: abs(weights(layer, hidden) - wanted))


def folder_of(out: Path, name: str, seed: int) -> Path:
    """The run folder of a row's models or taggers; the seed is that of the models."""
    return out / (name.translate(str.maketrans(",=", "--", " ")) + (f"-seed{seed}" if seed > 1 else ""))


def train_models(arguments: argparse.Namespace) -> None:
    """Train both models of each layer, and keep their figures."""
    for layer in arguments.layers:
        flags: dict[str, Any] = {"text": arguments.text, "rnn": SOURCES.get(layer, layer), "layers": 1 + (layer in TWO)}
        flags |= {"hidden_size": arguments.hidden or hidden_size(layer), "embedding_size": EMBEDDING}
        flags |= {"direction": "both", "split_size": 500_000, "epochs": arguments.epochs}
        flags |= {"device": arguments.device, "seed": arguments.seed}
        name = f"{layer}, H {arguments.hidden}" if arguments.hidden else layer
        if arguments.learning_rate:
            flags["learning_rate"] = arguments.learning_rate
            name += f", rate {arguments.learning_rate:g}"
        config = resolve(CharacterModelConfig, kind="character_model", preset="small", flags=flags)
        folder = folder_of(arguments.out, name, arguments.seed)
        figures = train_character_models(config, folder)
        figures |= {"settled": {way: settle(folder / way, config) for way in figures}}
        keep(name, {"hidden_size": config.hidden_size, f"seed {arguments.seed}": figures})


def settle(folder: Path, config: CharacterModelConfig, rates: Sequence[float] = SETTLING) -> float:
    """Go on with a model at some learning rates, a split each; return its bits per character on test.

    A fall of the rate gains a tenth of a bit at once. By itself it comes early, late or never within an epoch. After a
    kill, a call goes on from the last split.
    """
    corpus, dictionary = load_characters(config, False)
    splits = Splits(corpus, dictionary, config)
    model = load_character_model(folder / "model.safetensors").train()
    torch.manual_seed(config.seed)
    done, checkpoint = 0, folder / "settling.pt"
    if checkpoint.exists():
        done, weights, random = torch.load(checkpoint)
        model.load_state_dict(weights)
        torch.set_rng_state(random)
    optimizer = torch.optim.SGD(model.parameters())
    for number, rate in itertools.islice(zip(splits.order(1), rates), done, None):
        optimizer.param_groups[0]["lr"] = rate
        columns, hidden = splits.columns(number, 1, model.is_forward_lm), model.init_hidden(config.batch_size)
        for start in range(0, len(columns) - 1, config.bptt):
            piece = columns[start : start + config.bptt + 1].to(flair.device, torch.long)
            scores, _, hidden = model.forward(piece[:-1], hidden)
            optimizer.zero_grad()
            functional.cross_entropy(scores.flatten(0, 1), piece[1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            hidden = detach(hidden)
        done += 1
        torch.save((done, model.state_dict(), torch.get_rng_state()), unfinished := folder / "settling.new")
        unfinished.replace(checkpoint)
    return score_ids(model, corpus.test, corpus.vocabulary, config.batch_size).bits


def train_all_taggers(arguments: argparse.Namespace) -> None:
    """Train taggers with each pair of models, and keep their F1."""
    for corpus, layer in itertools.product(arguments.corpora, arguments.layers):
        models = folder_of(arguments.out, layer, arguments.seed)
        embeddings = [f"word:{arguments.vectors}", *(f"flair:{models / way / 'model.pt'}" for way in WAYS)]
        flags: dict[str, Any] = {"embeddings": embeddings, "seeds": SEEDS}
        flags |= {"data_root": arguments.data_root, "device": "cpu", "corpus": corpus, **CORPORA[corpus]}
        flags |= {"rnn": arguments.rnn} if arguments.rnn else {}
        key = f"{corpus}, {arguments.rnn} on top" if arguments.rnn else corpus
        config = resolve(TaggerConfig, kind="tagging", preset="small-ner", flags=flags)
        metrics = train_taggers(config, folder_of(arguments.out, f"{key}-{layer}", arguments.seed))
        key += f", models of seed {arguments.seed}" if arguments.seed > 1 else ""
        keep(layer, {key: [round(seed["test_f1"], 2) for seed in metrics["seeds"]]})


def measure_speed(arguments: argparse.Namespace) -> None:
    """Time all layers that have figures in turn, on one thread."""
    torch.set_num_threads(1)
    text = (Path(arguments.text) / "test.txt").read_text(encoding="utf-8")
    characters = Dictionary()
    for character in sorted({*text[:100_000]}):
        characters.add_item(character)
    ids = torch.tensor([characters.get_idx_for_item(character) for character in text[: 20 * 101]]).view(101, 20)
    lines = [line.split() for line in text.splitlines()[:32] if line.strip()]

    def train(model: LanguageModel) -> float:
        start = time.perf_counter()
        scores = model.forward(ids[:-1], model.init_hidden(20))[0]
        functional.cross_entropy(scores.flatten(0, 1), ids[1:].flatten()).backward()
        return time.perf_counter() - start

    def embed(embeddings: FlairEmbeddings) -> float:
        sentences = [Sentence(words) for words in lines]
        start = time.perf_counter()
        embeddings.embed(sentences)
        return time.perf_counter() - start

    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    steps: dict[str, dict[str, partial[float]]] = {"training": {}, "embedding": {}}
    for name, of in kept.items():
        layer = name.partition(", ")[0]
        spec, sizes = SOURCES.get(layer, layer), (of["hidden_size"], 1 + (layer in TWO), EMBEDDING)
        models = [LanguageModel(characters, True, *sizes, recurrent_type=spec, dropout=0.1) for _ in steps]
        steps["training"][name] = partial(train, models[0].train())
        steps["embedding"][name] = partial(embed, FlairEmbeddings(models[1].eval()))
    for kind, layers in steps.items():
        times = in_turn(layers, 100, 240)
        for name in layers:
            keep(name, {f"{kind} time": round(ratio(times[name], times["lstm"])[1], 3)})


def keep(layer: str, figures: dict[str, Any]) -> None:
    """Add figures of a layer to those that are kept."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept[layer] = {**kept.get(layer, {}), **figures}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table() -> str:
    """The kept figures as Markdown, of all seeds."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    corpora = [*CORPORA, "wnut_17, lstm on top"]
    rows = [["layer", "H", "weights", "test bits, forward", "backward", "training time", "embedding time"]]
    rows[0] += [f"test F1, {corpus}" for corpus in corpora]
    for layer, of in kept.items():
        models = [figures for name, figures in of.items() if name.startswith("seed ")]
        row = [layer, str(of["hidden_size"]), f"{models[0]['forward']['rnn_parameters']:,}"]
        row += [", ".join(f"{figures['settled'][way]:.3f}" for figures in models) for way in WAYS]
        row += [f"{of[name]:.2f}" for name in ("training time", "embedding time")]
        for corpus in corpora:
            found = [f1 for seed in ("", ", models of seed 2") for f1 in of.get(corpus + seed, ())]
            row.append(mean_and_spread(found) + f" ({len(found)})" if found else "-")
        rows.append(row)
    return as_table(rows)


def main() -> None:
    """Runs one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("models", "taggers", "speed"))
    parser.add_argument("--out", type=Path, help="folder for all runs; not of speed")
    parser.add_argument("--layers", nargs="+", default=LAYERS)
    parser.add_argument("--text", help="of models and speed")
    parser.add_argument("--epochs", type=int, default=3, help="of models (default: 3)")
    parser.add_argument("--device", default="cpu", help="of models (default: cpu)")
    parser.add_argument("--hidden", type=int, help="of models: H (default: as many weights as an LSTM of 256)")
    parser.add_argument("--seed", type=int, default=1, help="of models, also of those that taggers use (default: 1)")
    parser.add_argument("--learning-rate", type=float, help="of models (default: the preset's)")
    parser.add_argument("--corpora", nargs="+", default=CORPORA, help="of taggers (default: all)")
    parser.add_argument("--data-root", help="of taggers")
    parser.add_argument("--rnn", help="of taggers: their own layer (default: the preset's)")
    parser.add_argument("--vectors", help="of taggers: word vectors")
    arguments = parser.parse_args()
    parts = {"models": train_models, "taggers": train_all_taggers, "speed": measure_speed}
    parts[arguments.part](arguments)


if __name__ == "__main__":
    main()
