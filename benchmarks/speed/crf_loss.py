"""Steps of training a tagger with Flair's CRF loss as it is, and as `flair_nas.use_fast_crf` has it, in turn.

    python -m benchmarks.speed.crf_loss --corpora CORPUS ... --embeddings NAME ... [--data-root DATASETS] [--out FILE]

A step is loss and gradients of a batch of 32 sentences of train, one thread; each batch is taken by both, one after the
other, and the losses must be equal but for rounding. Their ratio is the median over the batches.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

from benchmarks.json_lines import RESULTS, lines_in, put

KEPT = RESULTS / "beside_flair.jsonl"
PART = "CRF loss"
BATCH = 32


def measure(corpus: str, rnn: str, arguments: argparse.Namespace) -> dict:
    """The seconds of both ways for one corpus and layer."""
    import flair
    import torch
    from flair.models.sequence_tagger_utils.crf import CRF
    from flair.models.sequence_tagger_utils.viterbi import ViterbiLoss

    from flair_nas.tagging.config import TaggerConfig
    from flair_nas.tagging.data.corpora import load_corpus_of, sentences_of
    from flair_nas.tagging.data.frozen_embeddings import keep_frozen
    from flair_nas.tagging.evaluation import forget_changing_embeddings
    from flair_nas.tagging.patches.viterbi_loss import FastCRF, FastViterbiLoss
    from flair_nas.tagging.training import build_tagger

    torch.set_num_threads(1)
    flair.set_seed(1)
    config = TaggerConfig(
        corpus=corpus, data_root=arguments.data_root, embeddings=arguments.embeddings, rnn=rnn,
        hidden_size=arguments.hidden_size, dropout=0.0, word_dropout=0.0, locked_dropout=0.0,
    )  # fmt: skip
    data = load_corpus_of(config)
    tagger = build_tagger(config, data)
    keep_frozen(tagger.embeddings, data)
    ways = {"flair": (CRF, ViterbiLoss), "flair_nas": (FastCRF, FastViterbiLoss)}
    sentences, seconds = sentences_of(data.corpus.train), {way: [] for way in ways}
    for number in range(arguments.steps + 1):
        batch = sentences[number * BATCH : (number + 1) * BATCH]
        losses = []
        for way in sorted(ways, reverse=bool(number % 2)):
            tagger.crf.__class__, tagger.loss_function.__class__ = ways[way]
            started = time.perf_counter()
            loss, _ = tagger.forward_loss(batch)
            loss.backward()
            if number:  # the first step warms up
                seconds[way].append(time.perf_counter() - started)
            losses.append(loss.item())
            forget_changing_embeddings(tagger, batch)
        if not math.isclose(*losses, rel_tol=1e-5):
            raise SystemExit(f"{corpus}, batch {number}: losses {losses} differ")
    ratio = statistics.median(before / after for before, after in zip(seconds["flair"], seconds["flair_nas"]))
    found = {
        "part": PART,
        "corpus": corpus,
        "rnn": rnn,
        "hidden_size": arguments.hidden_size,
        "tags": len(tagger.label_dictionary),
    }
    return found | {"steps": arguments.steps, "ratio": ratio} | {k: statistics.median(v) for k, v in seconds.items()}


def table() -> str:
    """The figures as a table."""
    rows = ["| corpus | tags | layer | H | ms a step, Flair | with flair-nas | times as fast |",
            "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for line in lines_in(KEPT):
        if line["part"] != PART:
            continue
        cells = [line["corpus"], line["tags"], line["rnn"], line["hidden_size"], f"{1e3 * line['flair']:.0f}"]
        cells += [f"{1e3 * line['flair_nas']:.0f}", f"{line['ratio']:.2f}"]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def main() -> None:
    """Measures corpora and layers in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", nargs="+", default=["demo"], metavar="CORPUS", help="as for tag train")
    parser.add_argument("--data-root", help="folder with the named corpora")
    parser.add_argument("--embeddings", nargs="+", default=["one-hot"], metavar="EMBEDDING", help="as for tag train")
    parser.add_argument("--rnns", nargs="+", default=["lstm", "i-darts-ptb"], metavar="RNN", help="as for tag train")
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    arguments = parser.parse_args()
    for corpus in arguments.corpora:
        for rnn in arguments.rnns:
            put(measure(corpus, rnn, arguments), arguments.out)


if __name__ == "__main__":
    main()
