"""Layers without a matrix in the recurrence: which parts help minGRU, SRU and ours? A test that may refute them all.

    python -m benchmarks.characters.modern run --text TEXT --data-root DATASETS --work RUNS \\
        --embeddings word:VECTORS.gensim flair:FORWARD.pt flair:BACKWARD.pt
    python -m benchmarks.characters.modern speed    # characters that a training reads in a second of CPU time

Written before the runs: such layers are refuted if none has at most 2.28 bits per character (forward, test) after 20
million characters, and none a mean of at least 33.0 F1 on WNUT-2017 over three seeds. Then none of them replaces the
LSTM (2.21 bits, 31.0 F1) and `small-relu-tanh` (2.21 bits, 33.6 F1), and no search among them is made.

The twelve are half of a factorial plan: minGRU, SRU and ours (`small-relu-tanh,recurrence=elementwise`), each with a
convolution, a matrix state or a gate alone, and with all three. The bases without a part are trained as well. So the
effect of each part alone is told for each base, and what all three give together; their pairs are not trained.

Character models have the settings of `benchmarks.characters.models`, forward, with as many weights in the layer as an
LSTM of 256 units. Taggers have those of the table small_cells. In turn: taggers with the first seed; all layers on 4
million characters, with half as many splits at a low rate; taggers with two more seeds; the best layers on 20 million.
`run` goes on where it stopped, and a kill costs minutes. The figures go to results/modern_layers.jsonl.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from flair.data import Dictionary
from flair.models import LanguageModel
from torch.nn import functional

from benchmarks.characters.models import EMBEDDING, HIDDEN, SETTLING, folder_of, settle
from benchmarks.characters.modern_layers import LAYERS, K, register
from benchmarks.json_lines import RESULTS, append, as_table, lines_so_far
from benchmarks.tables.spec import load_table
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.training import train_character_models
from flair_nas.errors import NotFiniteError
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.settings.resolve import resolve
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.training import train_taggers

FILE = RESULTS / "modern_layers.jsonl"
BASES = ("mingru", "sru", "small-relu-tanh,recurrence=elementwise")
REFERENCES = ("lstm", "small-relu-tanh", *BASES)
TABLE = load_table("small_cells")
SEEDS = TABLE.seeds[:3]
"""Seeds of taggers."""
FILES = {4: 1, 20: 5}
"""Files of the training text, by millions of characters."""
RATES = {4: SETTLING[::2], 20: SETTLING}
BEST = 4


def count_layers(layer: str) -> int:
    """Return 2 for minGRU and SRU, which have no matrix of H × H."""
    return 1 + layer.startswith(("mingru", "sru"))


def count_weights(layer: str, hidden: int) -> int:
    """Count the weights of a character model's layer."""
    from flair.models.language_model import create_recurrent_layer  # flair_nas has wrapped it by now

    with torch.device("meta"):
        made = create_recurrent_layer(layer, EMBEDDING, hidden, count_layers(layer))[0]
    return sum(parameter.numel() for parameter in made.parameters())


def hidden_size(layer: str) -> int:
    """Return the H at which a layer has as many weights as the LSTM, as nearly as its heads allow."""
    wanted = count_weights("lstm", HIDDEN)
    sizes = range(K, 1024, K if "matrix" in layer else 2)
    return min(sizes, key=lambda hidden: abs(count_weights(layer, hidden) - wanted))


def train_characters(layer: str, millions: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a character model, also at low rates, and return its figures."""
    text = arguments.work / f"text-{millions}"
    if not text.exists():
        (text / "train").mkdir(parents=True)
        source = Path(arguments.text).resolve()
        parts = [f"train/{file.name}" for file in sorted((source / "train").iterdir())[: FILES[millions]]]
        for part in (*parts, "valid.txt", "test.txt"):
            (text / part).symlink_to(source / part)
    flags: dict[str, Any] = {"text": str(text), "rnn": layer, "layers": count_layers(layer), "epochs": 1, "seed": 1}
    flags |= {"split_size": 500_000, "embedding_size": EMBEDDING, "hidden_size": hidden_size(layer)}
    flags |= {"direction": "forward", "device": "cpu"}
    config = resolve(CharacterModelConfig, kind="character_model", preset="small", flags=flags)
    folder = folder_of(arguments.work, f"{layer}-{millions}", 1)
    figures = train_character_models(config, folder, progress=False)["forward"]
    names = ("rnn_parameters", "train_characters", "test_bits", "cpu_seconds_per_epoch")
    kept = {name: figures[name] for name in names} | {"hidden_size": config.hidden_size}
    return kept | {"settled": settle(folder / "forward", config, RATES[millions])}


def train_tagger(layer: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a tagger and return its figures."""
    settings = {**TABLE.columns[0].settings, "rnn": layer, "seeds": [seed], "storage": "disk", "device": "cpu"}
    settings |= {"data_root": arguments.data_root, "embeddings": arguments.embeddings}
    folder = folder_of(arguments.work, f"wnut-{layer}", seed)
    metrics = train_taggers(TaggerConfig(**settings), folder, progress=False)
    figures = metrics["seeds"][0]
    return {name: figures[name] for name in ("rnn_parameters", "dev_f1", "test_f1", "cpu_seconds_per_epoch")}


def run(arguments: argparse.Namespace) -> None:
    """Do what has no line in the file yet, in turn."""
    do(arguments, "tagger", (*LAYERS, *BASES), SEEDS[0])
    do(arguments, "characters", (*LAYERS, *REFERENCES), 4)
    for seed in SEEDS[1:]:
        do(arguments, "tagger", (*LAYERS, *BASES), seed)
    done = results("characters", 4)
    trained = [layer for layer in LAYERS if "settled" in done[layer]]
    do(arguments, "characters", sorted(trained, key=lambda layer: done[layer]["settled"])[:BEST], 20)


def do(arguments: argparse.Namespace, part: str, layers: Any, number: int) -> None:
    """Train layers that have no line yet. The number is a tagger's seed, or millions of characters."""
    train = train_tagger if part == "tagger" else train_characters
    for layer in layers:
        if layer not in results(part, number):
            try:
                figures = train(layer, number, arguments)
            except NotFiniteError as error:
                figures = {"error": str(error)}
            append({"part": part, "number": number, "layer": layer, **figures}, FILE)


def results(part: str, number: int) -> dict[str, dict[str, Any]]:
    """Return the figures of a seed, or of some millions of characters, by layer."""
    lines = lines_so_far(FILE)
    return {line["layer"]: line for line in lines if (line["part"], line["number"]) == (part, number)}


def table() -> str:
    """Return the figures as Markdown."""
    rows = [["layer", "H", "weights", "bits, 4 million", "bits, 20 million", "weights, tagger", "test F1, wnut_17"]]
    small, large = (results("characters", millions) for millions in (4, 20))
    taggers = [results("tagger", seed) for seed in SEEDS]
    for layer in (*REFERENCES, *LAYERS):
        of = small.get(layer, {})
        row = [layer, str(of.get("hidden_size", "-")), str(of.get("rnn_parameters", "-"))]
        row += [f"{size[layer]['settled']:.3f}" if "settled" in size.get(layer, {}) else "-" for size in (small, large)]
        trained = [seed[layer] for seed in taggers if "test_f1" in seed.get(layer, {})]
        row.append(str(trained[0]["rnn_parameters"]) if trained else "-")
        scores = [figures["test_f1"] for figures in trained]
        rows.append([*row, f"{mean_and_spread(scores)} ({len(scores)})" if scores else "-"])
    return as_table(rows)


def measure_speed(arguments: argparse.Namespace) -> None:
    """Print how many characters the training of each layer reads in a second of CPU time."""
    torch.set_num_threads(1)
    characters = Dictionary()
    for number in range(250):
        characters.add_item(chr(100 + number))
    ids = torch.randint(250, (101, 20))
    for layer in (*REFERENCES, *LAYERS):
        sizes = hidden_size(layer), count_layers(layer), EMBEDDING
        model, times = LanguageModel(characters, True, *sizes, recurrent_type=layer), []
        for _ in range(6):
            start = time.process_time()
            scores = model.forward(ids[:-1], model.init_hidden(20))[0]
            functional.cross_entropy(scores.flatten(0, 1), ids[1:].flatten()).backward()
            times.append(time.process_time() - start)
        print(f"{layer:40} H {sizes[0]:4} {count_weights(layer, sizes[0]):8,} {2000 / statistics.median(times):8,.0f}")


def main() -> None:
    """Runs one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("run", "speed"))
    parser.add_argument("--text", help="of run")
    parser.add_argument("--data-root", help="of run")
    parser.add_argument("--embeddings", nargs="+", help="of run")
    parser.add_argument("--work", type=Path, help="of run: folder for all runs")
    arguments = parser.parse_args()
    register()
    (run if arguments.part == "run" else measure_speed)(arguments)


if __name__ == "__main__":
    main()
