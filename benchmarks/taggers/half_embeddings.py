"""What it would save and cost to keep the vectors of frozen embeddings in float16 and not in float32.

    python -m benchmarks.taggers.half_embeddings --model RUN/model.pt --corpus wnut_17 --data-root DATASETS [--out FILE]

With a tagger that was trained on float32 vectors: the size of the vectors of all words of the corpus, the time in which
Flair joins those of each batch of the training part (float16: and makes float32 of them; in turn, the median of
--repeat), how much of a training epoch that is, and the strict F1 on test with either. A JSON line goes to standard
output and to --out.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "half_embeddings.json"
BATCH = 32


def measure(arguments: argparse.Namespace) -> dict:
    """All figures."""
    import torch

    from flair_nas import load_tagger
    from flair_nas.tagging.data.corpora import load_corpus, sentences_of
    from flair_nas.tagging.data.frozen_embeddings import frozen_members, keep_frozen
    from flair_nas.tagging.evaluation import evaluate_tagger

    torch.set_num_threads(1)
    tagger = load_tagger(arguments.model)
    corpus = load_corpus(arguments.corpus, data_root=arguments.data_root)
    keep_frozen(tagger.embeddings, corpus, on_disk=False)
    names = [name for member in frozen_members(tagger.embeddings) for name in member.get_names()]
    parts = {part: sentences_of(getattr(corpus.corpus, part)) for part in ("train", "dev", "test")}
    tokens = [token for sentences in parts.values() for sentence in sentences for token in sentence]
    single = {name: [token.get_embedding([name]) for token in tokens] for name in names}
    half = {name: [vector.half() for vector in vectors] for name, vectors in single.items()}
    rounded = {name: [vector.float() for vector in vectors] for name, vectors in half.items()}

    def hand_out(vectors: dict) -> None:
        for name in names:
            for token, vector in zip(tokens, vectors[name]):
                token.set_embedding(name, vector)

    train = sorted(parts["train"], key=len, reverse=True)
    batches = [train[start : start + BATCH] for start in range(0, len(train), BATCH)]

    def join() -> float:
        started = time.perf_counter()
        for batch in batches:
            tagger._make_padded_tensor_for_batch(batch)[1].float()
        return time.perf_counter() - started

    seconds: dict[str, list[float]] = {"float32": [], "float16": []}
    for _ in range(arguments.repeat):
        for form, vectors in (("float32", single), ("float16", half)):
            hand_out(vectors)
            seconds[form].append(join())
    hand_out(single)
    tagger.train()
    started = time.perf_counter()
    for batch in batches:
        tagger.forward_loss(batch)[0].backward()
    epoch = time.perf_counter() - started
    tagger.zero_grad()
    tagger.eval()
    f1 = {}
    for form, vectors in (("float32", single), ("float16", rounded)):
        hand_out(vectors)
        f1[form] = evaluate_tagger(tagger, parts["test"], corpus.label_type, storage="cpu").f1
    width = sum(len(single[name][0]) for name in names)
    return {
        "corpus": corpus.name,
        "words": len(tokens),
        "width": width,
        "mb": {"float32": 4 * width * len(tokens) / 1e6, "float16": 2 * width * len(tokens) / 1e6},
        "join_seconds": {form: statistics.median(values) for form, values in seconds.items()},
        "epoch_seconds": epoch,
        "test_f1": f1,
    }


def table() -> str:
    """The figures as a table."""
    found = json.loads(RESULTS.read_text())
    rows = ["| vectors as | MB | s to join the batches of an epoch | share of an epoch | test F1 of one tagger |",
            "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for form in ("float32", "float16"):
        joined = found["join_seconds"][form]
        rows.append(f"| {form} | {found['mb'][form]:,.0f} | {joined:.2f} | {joined / found['epoch_seconds']:.1%} | "
                    f"{found['test_f1'][form]:.2f} |")  # fmt: skip
    return "\n".join(rows)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model.pt of a tagger without embeddings that learn")
    parser.add_argument("--corpus", default="wnut_17")
    parser.add_argument("--data-root", help="folder with the named corpora")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file for the JSON line")
    arguments = parser.parse_args()
    line = json.dumps(measure(arguments), indent=1)
    print(line)
    if arguments.out:
        arguments.out.write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
