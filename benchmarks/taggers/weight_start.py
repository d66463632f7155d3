"""How weights should start: taggers and language models that differ in that alone.

    python -m benchmarks.taggers.weight_start tag START ... --corpus wnut_17 --hidden-size 128 --seeds 1 2 3 \
        --data-root DATASETS --embeddings EMBEDDING ... --out RUNS
    python -m benchmarks.taggers.weight_start lm START ... --text PTB --hidden-size 128 --seeds 1 2 3 --out RUNS
    python -m benchmarks.taggers.weight_start norms START ... --text PTB --hidden-size 64

START is a name of STARTS below. Each run has a folder of its own below RUNS, goes on where it was stopped, and leaves
a line in benchmarks/results/weight_start.jsonl; what has one there is not run again. A tagger is trained until its
learning rate, a quarter of itself after more than three epochs without improvement on dev, is below a hundredth of the
first.
"""

import argparse
import functools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.json_lines import RESULTS, append, lines_so_far

FILE = RESULTS / "weight_start.jsonl"
SHOWN_STEPS = (0, 10, 100, 300)
SHOWN_EPOCHS = {  # and whether the best so far is shown
    "wnut_17-h64": ((3, 5, 10, 20), True),
    "wnut_17-h512": ((3, 6, 8, 10), True),
    "conll_2000-h64": ((1, 3, 6, 9, 12), False),
}
Start = Callable[[Any], None]


def uniform(scale: float) -> Start:
    """All matrices uniform in ±scale / √H."""

    def start(cell: Any) -> None:
        for weight in _weights(cell):
            nn.init.uniform_(weight, -scale / math.sqrt(cell.hidden_size), scale / math.sqrt(cell.hidden_size))

    return start


def narrow(cell: Any) -> None:
    """All matrices uniform in ±0.04, as in the papers' code, at any width."""
    for weight in _weights(cell):
        nn.init.uniform_(weight, -0.04, 0.04)


def by_fan_in(scale: float) -> Start:
    """Each matrix uniform in ±scale / √(its rows)."""

    def start(cell: Any) -> None:
        for weight in _weights(cell):
            width = scale / math.sqrt(weight.shape[0])
            nn.init.uniform_(weight, -width, width)

    return start


def orthogonal(cell: Any) -> None:
    """Square blocks orthogonal, the input's matrix with columns of the same length on average."""
    for weight in _weights(cell):
        for block in weight.data.chunk(2, dim=1):
            nn.init.orthogonal_(block)
    nn.init.uniform_(cell.weight_input, -math.sqrt(3 / cell.input_size), math.sqrt(3 / cell.input_size))


def input_apart(scale: float, of_input: float) -> Start:
    """The input's matrix uniform in ±of_input / √H, the others in ±scale / √H: embeddings are often small."""

    def start(cell: Any) -> None:
        uniform(scale)(cell)
        width = of_input / math.sqrt(cell.hidden_size)
        nn.init.uniform_(cell.weight_input, -width, width)

    return start


STARTS: dict[str, Start] = {
    "narrow": narrow,
    **{f"uniform-{scale:g}": uniform(scale) for scale in (1.17, 1.5, 2, 2.5, 3, 4)},
    **{f"fan-in-{scale:g}": by_fan_in(scale) for scale in (1.5, 2, 3)},
    "orthogonal": orthogonal,
    **{f"input-{scale:g}": input_apart(2, scale) for scale in (4, 8, 16)},
}


def _weights(cell: Any) -> list[Tensor]:
    return [cell.weight_input, cell.weight_hidden, *cell.weight_nodes.unbind()]


def use(start: str, gate_bias: float) -> None:
    """Has all cells of this process start so; a bias is added to what every gate takes its sigmoid of."""
    from flair_nas.nn.cell import SearchedCell
    from flair_nas.nn.kernels import elementwise

    drawn = getattr(SearchedCell.reset_parameters, "__wrapped__", SearchedCell.reset_parameters)

    @functools.wraps(drawn)
    def reset_parameters(cell: SearchedCell) -> None:
        drawn(cell)  # those of inter-cell gates
        with torch.no_grad():
            STARTS[start](cell)

    SearchedCell.reset_parameters = reset_parameters  # type: ignore[method-assign]
    if gate_bias:
        plain = getattr(elementwise.highway_edges, "__wrapped__", elementwise.highway_edges)

        @functools.wraps(plain)
        def highway_edges(pre: Tensor, state: Tensor, heads: Any) -> list[Tensor]:
            gate, value = pre.chunk(2)
            return plain(torch.cat([gate + gate_bias, value]), state, heads)

        elementwise.highway_edges = highway_edges


def name_of(arguments: argparse.Namespace, start: str, seed: int) -> str:
    """The name of a run, of its folder and of its figures."""
    task = arguments.corpus if arguments.what == "tag" else "text"
    rnn = arguments.rnn.replace("/", "_")
    parts = [arguments.what, task, f"h{arguments.hidden_size}", rnn, start]
    parts += [f"bias{arguments.gate_bias:g}"] if arguments.gate_bias else []
    parts += [f"lr{arguments.learning_rate:g}"] if arguments.learning_rate else []
    return "-".join([*parts, f"seed{seed}"])


def train_tagger(arguments: argparse.Namespace, seed: int, out: Path) -> dict[str, Any]:
    """One tagger, and its figures."""
    from flair_nas import TaggerConfig, train_taggers

    rate = arguments.learning_rate or 0.1
    config = TaggerConfig(
        corpus=arguments.corpus,
        data_root=arguments.data_root,
        embeddings=arguments.embeddings,
        rnn=arguments.rnn,
        hidden_size=arguments.hidden_size,
        learning_rate=rate,
        anneal_factor=0.25,
        patience=3,
        min_learning_rate=rate / 100,
        epochs=arguments.epochs,
        seeds=[seed],
        device="cpu",
    )
    from flair_nas.errors import FlairNasError

    try:
        metrics = train_taggers(config, out, progress=False)
    except FlairNasError as error:
        return failed(error)
    history = [json.loads(line) for line in (out / f"seed-{seed}" / "history.jsonl").read_text().splitlines()]
    kept = {key: metrics["seeds"][0][key] for key in ("dev_f1", "test_f1", "best_epoch", "epochs", "rnn_parameters")}
    return {**kept, "history": [{key: line[key] for key in ("train_loss", "dev_loss", "dev_f1")} for line in history]}


def train_model(arguments: argparse.Namespace, seed: int, out: Path) -> dict[str, Any]:
    """One language model, and its figures."""
    from flair_nas import LanguageModelConfig, train_language_model
    from flair_nas.errors import FlairNasError

    config = LanguageModelConfig(
        text=arguments.text,
        vocabulary_size=arguments.vocabulary_size,
        rnn=arguments.rnn,
        hidden_size=arguments.hidden_size,
        learning_rate=arguments.learning_rate or 20.0,
        epochs=arguments.epochs,
        averaging=False,
        dropout=0.3,
        input_dropout=0.2,
        recurrent_dropout=0.1,
        embedding_dropout=0.1,
        word_dropout=0.05,
        batch_size=64,
        eval_batch_size=10,
        seed=seed,
        device="cpu",
    )
    try:
        metrics = train_language_model(config, out, progress=False)
    except FlairNasError as error:
        return failed(error)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return {
        **{key: metrics[key] for key in ("dev_perplexity", "test_perplexity", "parameters")},
        "history": [line["dev_perplexity"] for line in history],
    }


def norms(arguments: argparse.Namespace, start: str) -> dict[str, Any]:
    """Norms of the gradient of each matrix of a cell, and the size of its states, in the first steps of a model."""
    from flair_nas import LanguageModelConfig
    from flair_nas.language_model.saved import build_language_model
    from flair_nas.language_model.text.corpus import batchify, load_text

    config = LanguageModelConfig(
        text=arguments.text,
        vocabulary_size=arguments.vocabulary_size,
        rnn=arguments.rnn,
        hidden_size=arguments.hidden_size,
        dropout=0.0,
        input_dropout=0.0,
        recurrent_dropout=0.0,
        embedding_dropout=0.0,
    )
    corpus = load_text(config.text, config)
    torch.manual_seed(arguments.seeds[0])
    model = build_language_model(config, len(corpus.vocabulary))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate or 10.0)
    columns = batchify(corpus.train, 64)
    found: dict[str, Any] = {"steps": [], "rms": [], "norms": []}
    state = None
    for step in range(301):
        rows = columns[step * 35 : step * 35 + 36]
        output, raw, _ = model(rows[:-1], state)
        del output
        loss = model.loss(rows[:-1], rows[1:], state)
        optimizer.zero_grad()
        loss.total.backward()
        if step in (0, 10, 30, 100, 300):
            cell = model.layer.cells[0]
            gradients = [cell.weight_input.grad, cell.weight_hidden.grad, *cell.weight_nodes.grad.unbind()]
            found["steps"].append(step)
            found["rms"].append(float(raw.square().mean().sqrt()))
            found["norms"].append([float(gradient.norm()) for gradient in gradients])
            shown = " ".join(f"{value:.2g}" for value in found["norms"][-1])
            print(f"{start}, step {step}: loss {float(loss.total):.3f}, rms of h {found['rms'][-1]:.3f}; {shown}")
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        state = loss.state
    return found


def failed(error: Exception) -> dict[str, Any]:
    """A loss that is not finite is a figure, too; another error is raised."""
    what = str(error)
    if "not finite" not in what and "is nan" not in what:
        raise error
    return {"error": what.partition(":")[0]}


def kept_runs() -> dict[str, dict[str, Any]]:
    """The figures by the names of their runs."""
    return {line["name"]: line for line in lines_so_far(FILE)}


def table_of_norms() -> str:
    """What the first steps of a model are like by the start of its weights, seed 1, as a table."""
    rows = ["| start | step | rms of h | of the input | of h | of nodes 1, 4, 8 |",
            "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    runs = kept_runs()
    kept = {start: f"norms-text-h64-i-darts-ptb-{start}-seed1" for start in STARTS}
    for start, name in kept.items():
        if (found := runs.get(name)) is None:
            continue
        for step, rms, of in zip(found["steps"], found["rms"], found["norms"]):
            if step in SHOWN_STEPS:
                nodes = ", ".join(_two_digits(of[1 + node]) for node in (1, 4, 8))
                rows.append(
                    f"| {label(start)} | {step} | {rms:.3f} | {_two_digits(of[0])} | {_two_digits(of[1])} | {nodes} |"
                )
    return "\n".join(rows)


def table_of_models() -> str:
    """Valid perplexities by layer, start and learning rate, as a table."""
    name = re.compile(r"lm-text-h(\d+)-(.+)-(" + "|".join(STARTS) + r")(?:-bias([-\d.]+))?-lr([\d.]+)-seed1")
    cells: dict[tuple[Any, ...], dict[str, str]] = defaultdict(dict)
    for run_name, run in kept_runs().items():
        match = name.fullmatch(run_name)
        if match is None:
            continue
        size, rnn, start, bias, rate = match.groups()
        shown = run["error"].replace("epoch 1, ", "") if "error" in run else f"{run['dev_perplexity']:.2f}"
        cells[rnn, int(size), bias or "", list(STARTS).index(start)][rate] = shown
    rows = ["| layer | H | start | rate 5 | rate 10 | rate 20 |", "| --- | --- | --- | --- | --- | --- |"]
    for rnn, title in _layers().items():
        for (_, size, bias, start), of in sorted((key, of) for key, of in cells.items() if key[0] == rnn):
            said = "its own" if rnn == "lstm" else label(list(STARTS)[start])
            said += f", each highway gate biased by {bias}, so that it starts by remembering" if bias else ""
            rows.append(
                f"| {title} | {size} | {said} | {' | '.join(of.get(rate, '-') for rate in ('5', '10', '20'))} |"
            )
    return "\n".join(rows)


def table_of_taggers(what: str) -> str:
    """F1 on dev in the course of training by start, `i-darts-ptb`, seed 1, for a corpus and size of SHOWN_EPOCHS."""
    kept, names = kept_runs(), {start: f"tag-{what}-i-darts-ptb-{start}-seed1" for start in STARTS}
    runs = {start: kept[name] for start, name in names.items() if name in kept}
    epochs, best = SHOWN_EPOCHS[what]
    ended = len({run["epochs"] for run in runs.values()}) > 1  # each at its own time
    first = f"after {epochs[0]} epochs" if best else f"dev F1 after {epochs[0]} epoch"
    titles = [first, *map(str, epochs[1:])]
    titles += ["the best"] * ended + ["test"] + ["epochs"] * ended
    rows = [f"| start | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    for start, run in runs.items():
        f1 = [line["dev_f1"] for line in run["history"]]
        shown = [f"{max(f1[:epoch]) if best else f1[epoch - 1]:.1f}" for epoch in epochs]
        shown += [f"{run['dev_f1']:.1f}"] * ended + [f"{run['test_f1']:.1f}"] + [str(run["epochs"])] * ended
        rows.append(f"| {label(start)} | {' | '.join(shown)} |")
    return "\n".join(rows)


def label(start: str) -> str:
    """A start in words."""
    kind, _, scale = start.rpartition("-")
    forms = {
        "uniform": f"±{scale}/√H",
        "fan-in": f"±{scale}/√fan in",
        "input": f"±2/√H, that of the input ±{scale}/√H",
    }
    return "±0.04" if start == "narrow" else forms.get(kind, start)


def _layers() -> dict[str, str]:
    """What the layers of language models are called."""
    from flair_nas import random_genotype

    return {"i-darts-ptb": "i-darts-ptb", "darts-v2": "darts-v2", random_genotype(1).one_line(): "random cell 1",
            "lstm": "LSTM"}  # fmt: skip


def _two_digits(value: float) -> str:
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tag", "lm", "norms"))
    parser.add_argument("starts", nargs="*", help=f"of {', '.join(STARTS)}")
    parser.add_argument("--corpus", default="wnut_17")
    parser.add_argument("--data-root", help="folder with the corpora, as Flair lays them out")
    parser.add_argument("--embeddings", nargs="+", help="as flair-nas tag train takes them")
    parser.add_argument("--text", help="folder with train.txt, valid.txt and test.txt")
    parser.add_argument("--vocabulary-size", type=int, default=2000)
    parser.add_argument("--rnn", default="i-darts-ptb")
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--gate-bias", type=float, default=0.0, help="needs FLAIR_NAS_KERNELS=columns")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("runs/weight_start"))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.starts) - set(STARTS)):
        parser.error(f"unknown starts {', '.join(unknown)}; there are {', '.join(STARTS)}")
    from flair_nas.tagging import training

    training.load_corpus = functools.cache(training.load_corpus)  # its embeddings are computed once
    for seed in arguments.seeds:
        for start in arguments.starts:
            name = name_of(arguments, start, seed)
            if name in kept_runs():
                continue
            if arguments.rnn.lower() != "lstm":
                use(start, arguments.gate_bias)
            if arguments.what == "norms":
                append({"name": name, **norms(arguments, start)}, FILE)
                continue
            figures = (train_tagger if arguments.what == "tag" else train_model)(arguments, seed, arguments.out / name)
            append({"name": name, **figures}, FILE)
            print(name, {key: value for key, value in figures.items() if key != "history"}, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
