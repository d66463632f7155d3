"""The answer of a selection: which layer, how much better than the one to beat, how sure that is, and at which cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flair_nas.search.display import duration
from flair_nas.select.bootstrap import counts_in, f1, resampled
from flair_nas.select.candidates import Candidate
from flair_nas.select.config import SelectConfig
from flair_nas.select.ledger import Ledger


@dataclass(frozen=True)
class Answer:
    """What was found, on the test part (on dev, where there is none).

    Args:
        winner: the candidate that is best on dev.
        part: test or dev.
        f1: its mean over seeds.
        interval: which 95 % of resampled means are in.
        to_beat: the layer to beat; None where the winner is that layer, or it failed.
        f1_to_beat: its mean.
        probability: that the winner is better, over seeds and sentences; None without another.
    """

    winner: Candidate
    part: str
    f1: float
    interval: tuple[float, float]
    to_beat: Candidate | None
    f1_to_beat: float | None
    probability: float | None


def answer_of(
    folder: Path, winner: Candidate, to_beat: Sequence[Candidate], seeds: Sequence[int], spans: bool
) -> Answer:
    """The answer, from the predictions of all seeds.

    Args:
        folder: of the selection.
        winner: the best on dev.
        to_beat: the layer to beat with its best learning rate, if it worked.
        seeds: of both.
        spans: whether entities are counted.
    """
    other = next((candidate for candidate in to_beat if candidate != winner), None)
    compared = [winner] if other is None else [winner, other]
    runs = [[folder / "runs" / c.run(seed) / f"seed-{seed}" for seed in seeds] for c in compared]
    part = "test" if (runs[0][0] / "test.txt").exists() else "dev"
    counts = [[counts_in(run / f"{part}.txt", spans) for run in of] for of in runs]
    means = [float(np.mean([f1(of_seed.sum(0)) for of_seed in of])) for of in counts]
    drawn = resampled(counts)
    low, high = np.quantile(drawn[:, 0], [0.025, 0.975])
    return Answer(
        winner,
        part,
        means[0],
        (float(low), float(high)),
        other,
        means[1] if other else None,
        float(np.mean(drawn[:, 0] > drawn[:, 1])) if other else None,
    )


def sentence_of(answer: Answer, seeds: int) -> str:
    """The answer in a sentence or two."""
    low, high = answer.interval
    figure = f"F1 on {answer.part} {answer.f1:.2f} (95 %: {low:.2f} to {high:.2f}, {seeds} seeds)"
    layer = f"{answer.winner.layer.name} with the learning rate {answer.winner.learning_rate:g}"
    if answer.to_beat is None:
        return f"Stay with {layer}: nothing that was tried is better on dev. {figure}."
    assert answer.f1_to_beat is not None and answer.probability is not None
    found = "better" if answer.f1 > answer.f1_to_beat else "not better"
    return (
        f"{layer} is {found} than {answer.to_beat.layer.name}: {figure} against {answer.f1_to_beat:.2f}; "
        f"the probability that it is better, over seeds and sentences, is {answer.probability:.2f}."
    )


def report_of(
    answer: Answer, candidates: Sequence[Candidate], ledger: Ledger, config: SelectConfig, seconds: float
) -> str:
    """The answer, how to use it, and a table of all that was tried, as Markdown."""
    lines = [f"# Layers for {config.corpus}", "", sentence_of(answer, len(config.seeds)), ""]
    lines += [f"{duration(seconds)} of {config.budget}. The tagger: `model.pt`. In Flair:", "", "```python"]
    layer = answer.winner.layer
    lines += [f'SequenceTagger(..., rnn_type="{layer.rnn}", hidden_size={layer.hidden_size})', "```", ""]
    lines += ["| layer | H | rate | seeds | epochs | best dev F1 | test F1 | parameters | s / epoch |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    rows = []
    for candidate in candidates:
        runs = [run for seed in config.seeds if (run := ledger.runs.get(candidate.run(seed)))]
        good = [run for run in runs if "error" not in run]
        start = f"| {candidate.layer.name} | {candidate.layer.hidden_size} | {candidate.learning_rate:g} | "
        if not good:
            rows.append((0.0, f"{start}failed: {runs[0]['error'] if runs else 'not begun'} | | | | | |"))
            continue
        dev = [max(run["dev"]) for run in good]
        test = [run["test"] for run in good if run["test"] is not None]
        epochs = statistics.mean(len(run["dev"]) for run in good)
        time = statistics.median(second for run in good for second in run["seconds"])
        figures = f"{len(good)} | {epochs:.0f} | {_mean(dev)} | {_mean(test)} | {good[0]['parameters']:,} | {time:.1f}"
        rows.append((epochs * 1000 + statistics.mean(dev), f"{start}{figures} |"))
    return "\n".join([*lines, *(text for _, text in sorted(rows, key=lambda row: -row[0]))]) + "\n"


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"
