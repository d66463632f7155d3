"""The answer of a selection: the better layer, its lead with a probability, and its cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.drawing.charts import Point
from flair_nas.errors import as_markdown
from flair_nas.experiments.counts import unpack_counts
from flair_nas.experiments.ledger import Ledger, Run
from flair_nas.experiments.statistics import compare, epoch_seconds, mean_and_spread
from flair_nas.experiments.tasks import Task
from flair_nas.runs.duration import duration, format_time, parse_time
from flair_nas.select.candidates import Candidate, is_baseline
from flair_nas.select.config import SelectSettings

PICTURE = "seconds.svg"
"""File name of the picture."""

ALL_CANDIDATES = "## All candidates"
"""Title of the last section of a report."""
_SURE = 0.95


@dataclass(frozen=True)
class Scored:
    """A candidate with its score."""

    candidate: Candidate  # layer and learning rate
    figure: float  # mean metric over seeds, such as F1
    interval: tuple[float, float]  # 95 % confidence interval of the mean


@dataclass(frozen=True)
class Answer:
    """The comparison of the baseline with the best other candidate."""

    part: str  # part of the data that scores them: test, or dev if there is no test
    judges: tuple[int, ...]  # seeds that judge
    winner: Scored  # the better one
    other: Scored | None  # the worse one; None if it did not work
    interval: tuple[float, float] | None  # 95 % interval of the lead; None without another layer
    probability: float | None  # probability that the winner is better; None without another layer
    fresh: bool = True  # True if the seeds took no part in the choice

    @property
    def seeds(self) -> int:
        """Number of seeds that judge."""
        return len(self.judges)

    @property
    def found_nothing(self) -> bool:
        """True if even the winner finds nothing."""
        return self.winner.figure == 0  # a perplexity never is

    @property
    def is_sure(self) -> bool:
        """True if the winner is better with a probability of 0.95, over several seeds."""
        return self.seeds > 1 and self.probability is not None and self.probability >= _SURE


def make_answer(
    task: Task, finalists: Sequence[Candidate], runs: Sequence[Sequence[Run]], judges: Sequence[int], *, fresh: bool
) -> Answer:
    """Return the answer from the runs of each finalist, one for each judge.

    Finalists are the baseline and the best other candidate, or one of them.
    """
    counts = [[unpack_counts(run["counts"]) for run in row] for row in runs]
    part, seeds = task.dev if runs[0][0]["test"] is None else "test", tuple(judges)
    scored = []
    for candidate, row in zip(finalists, counts):
        mean = compare(row, [], task.figure)
        low, high = (min(max(end, 0.0), task.most) for end in mean.interval())
        scored.append(Scored(candidate, mean.value, (low, high)))
    if len(scored) == 1:
        return Answer(part, seeds, scored[0], None, None, None, fresh)
    gain = compare(counts[1], counts[0], task.figure, task.gain(1.0, 0.0))
    if gain.value <= 0:  # the baseline wins unless another layer is ahead
        scored.reverse()
        gain = gain._replace(value=0.0 - gain.value)
    return Answer(part, seeds, scored[1], scored[0], gain.interval(), gain.probability, fresh)


def recommend(answer: Answer, config: SelectSettings) -> Candidate:
    """Return the candidate to use: the baseline, unless another is surely better or the baseline failed."""
    take = answer.other is None or answer.is_sure or is_baseline(answer.winner.candidate.layer, config)
    return (answer.winner if take else answer.other or answer.winner).candidate


# --- in words ---


def summarize_answer(answer: Answer, config: SelectSettings) -> str:
    """Return the answer in one sentence."""
    winner, best = answer.winner, recommend(answer, config).layer.name
    keep = f"Keep {best}"
    if answer.found_nothing:
        return f"Undecided: no layer has learnt anything, as {config.task.title} is 0 everywhere."
    if answer.other is None:
        alone = is_baseline(winner.candidate.layer, config)
        return f"{keep}: no other layer came to the end." if alone else f"Take {best}: {config.rnn} has failed."
    if answer.seeds == 1:
        return f"Undecided, so keep {best}: one seed of each does not tell which layer is better."
    lead = abs(winner.figure - answer.other.figure)
    if is_baseline(winner.candidate.layer, config):
        return f"{keep}: {answer.other.candidate.layer.name}, the best of the others, is not ahead."
    words = f"by {lead:.2f} {config.task.title}, with a probability of {answer.probability:.2f}"
    if answer.is_sure:
        return f"Take {best}: it is better than {config.rnn} {words}."
    return f"{keep}: {winner.candidate.layer.name} is ahead {words}, where {_SURE} would be sure."


def _answer_table(answer: Answer, ledger: Ledger, config: SelectSettings) -> list[str]:
    """Return a small table of the layers of the answer, the baseline first."""
    head = f"| layer | H | rate | {config.task.title} on {answer.part} | 95 % | P(better) | weights | s / epoch | MB |"
    lines = [head, "| --- " * 9 + "|"]
    both = [scored for scored in (answer.winner, answer.other) if scored]
    for scored in sorted(both, key=lambda scored: not is_baseline(scored.candidate.layer, config)):
        layer, chance = scored.candidate.layer, "-"
        if answer.probability is not None and not answer.found_nothing and not is_baseline(layer, config):
            chance = f"{answer.probability if scored is answer.winner else 1 - answer.probability:.2f}"
        start = scored.candidate.run(0)[:-1]
        runs = [run for name, run in ledger.runs.items() if name.startswith(start) and "error" not in run]
        cells = (
            *(as_markdown(layer.name), str(layer.hidden_size), f"{scored.candidate.learning_rate:g}"),
            *(f"{scored.figure:.2f}", _range(scored.interval), chance, *_costs(runs)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _costs(runs: Sequence[Run]) -> tuple[str, str, str]:
    """Return weights, seconds an epoch and memory of runs of a candidate."""
    memory = max(run["peak_memory_mb"] for run in runs)
    return f"{runs[0]['parameters']:,}", f"{epoch_seconds(runs):.1f}", f"{memory:,.0f}"


def explain_answer(answer: Answer, config: SelectSettings) -> str:
    """Return what the figures of the answer mean, and how to settle it."""
    task, winner, words = config.task, answer.winner, list[str]()
    judges = f"{answer.seeds} {'fresh ' * answer.fresh}seed{'s' * (answer.seeds > 1)}"
    if answer.found_nothing:
        return f"{suggest_longer_training(config)}."
    if answer.interval is not None and answer.other is not None:
        over = f"over {judges} and sentences" if answer.seeds > 1 else "over sentences alone, as there is one seed"
        name, other = (as_markdown(scored.candidate.layer.name) for scored in (winner, answer.other))
        gain = task.gain(winner.figure, answer.other.figure)
        lead = f"{name} is {'better' if gain > 0 else 'worse'} than {other} by {abs(gain):.2f}"
        if f"{abs(gain):.2f}" == "0.00":
            lead = "They are level"
        words.append(
            f"P(better): how likely a layer is better than {as_markdown(config.rnn)}, {over}. {lead} "
            f"(95 %, above zero where {name} is better: {_range(answer.interval)})."
        )
    else:
        words.append(f"The figures are of {judges}.")
    if flags := suggest_flags(answer, config):
        words.append(f"To settle it, `--resume` once with `{flags}`, which adds seeds.")
    if answer.part != "test":
        words.append(f"There is no test part: these figures are of {answer.part}, which chose, and so too good.")
    return " ".join(words)


def suggest_longer_training(config: SelectSettings) -> str:
    """Return advice for a selection that found nothing."""
    return (
        f"Train longer (--epochs {2 * config.epochs}, in another folder) and with a larger --budget, with other "
        "learning rates (--rates), or on more sentences"
    )


def suggest_flags(answer: Answer, config: SelectSettings) -> str:
    """Return the flags for `--resume` that may settle an answer, or an empty string if it is settled."""
    if answer.probability is None or answer.found_nothing:
        return ""
    if answer.seeds > 1 and (is_baseline(answer.winner.candidate.layer, config) or answer.is_sure):
        return ""
    more = f"--fresh-seeds {max(10, 2 * config.fresh_seeds)} "
    seeds = more if answer.fresh and answer.seeds >= config.fresh_seeds else ""  # there was time for all
    return f"{seeds}--budget {format_time(2 * (parse_time(config.budget) or 0.0))}"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


# --- the report ---


def format_report(
    answer: Answer,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    config: SelectSettings,
    cautions: Sequence[str] = (),
) -> str:
    """Return the report as Markdown: answer, cautions, use, and a table of all candidates."""
    task, best = config.task, recommend(answer, config)
    lines = [f"# Recurrent layers for {as_markdown(str(getattr(config, task.data)))}", ""]
    lines += [f"**{as_markdown(summarize_answer(answer, config))}**", "", *_answer_table(answer, ledger, config), ""]
    lines += [explain_answer(answer, config), ""]
    fresh = " Fresh seeds took no part in the choice of layers." * answer.fresh
    spent = f"{duration(ledger.seconds)} of {duration(parse_time(config.budget) or 0.0)}"
    model = f"`model.pt` is the {task.model} of {as_markdown(best.layer.name)} at learning rate {best.learning_rate:g}"
    lines += [f"{model}, of the seed best on {task.dev}.{fresh} Time: {spent}."]
    if cautions:
        lines += ["", "Beware:", "", *(f"- {as_markdown(caution)}." for caution in cautions)]
    if not answer.found_nothing:
        lines += ["", *task.work.usage(best.settings(config, config.seeds[0], config.epochs))]
    lines += [
        *("", ALL_CANDIDATES, ""),
        f"| layer | H | rate | seeds | epochs | least {task.dev} loss | best {task.dev} {task.title} | "
        f"test {task.title} | weights | s / epoch | MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [text for _, text in sorted(_row(candidate, answer, ledger, config) for candidate in candidates)]
    if len(make_points(candidates, ledger, config)) > 1:
        lines += ["", f"![{task.title} on {task.dev} against seconds an epoch]({PICTURE})"]
    searches = {name: run for name, run in ledger.runs.items() if name.startswith("search-") and "error" in run}
    lines += [line for name, run in searches.items() for line in ("", as_markdown(f"{name} failed: {run['error']}"))]
    return "\n".join(lines) + "\n"


def make_points(candidates: Sequence[Candidate], ledger: Ledger, config: SelectSettings) -> list[Point]:
    """Return a point for each finished layer with its best rate: seconds an epoch, mean metric on dev."""
    task, points = config.task, dict[str, Point]()
    for candidate in candidates:
        runs = [ledger.runs.get(candidate.run(seed), {}) for seed in config.seeds]
        ended = [run for run in runs if len(run.get("dev", ())) >= config.epochs or run.get("exhausted", False)]
        if not ended:
            continue
        name, figure = candidate.layer.name, statistics.mean(task.best(run["dev"]) for run in ended)
        if name not in points or task.gain(figure, points[name].figure) > 0:
            marked = is_baseline(candidate.layer, config)
            points[name] = Point(name, epoch_seconds(ended), figure, marked)
    return list(points.values())


def _row(
    candidate: Candidate, answer: Answer, ledger: Ledger, config: SelectSettings
) -> tuple[tuple[float, float, float], str]:
    """Return the key that sorts a row of the table, and the row."""
    task, layer, name = config.task, candidate.layer, as_markdown(candidate.layer.name)
    by_seed = {seed: ledger.runs.get(candidate.run(seed)) for seed in [*config.seeds, *config.fresh()]}
    good = [run for seed in config.seeds if (run := by_seed[seed]) and "error" not in run]
    start = f"| {name} | {layer.hidden_size} | {candidate.learning_rate:g} | "
    errors = [f"failed: {' '.join(run['error'].split())}" for run in by_seed.values() if run and "error" in run]
    bad = as_markdown("; ".join(errors))
    if not good:
        return (0.0, 0.0, 0.0), f"{start}{bad or 'not begun'} | | | | | | | |"
    dev = [task.best(run["dev"]) for run in good]
    judged: list[Any] = [run["test"] for seed in answer.judges if (run := by_seed.get(seed)) and "test" in run]
    test = [metric for metric in judged if metric is not None]
    epochs = statistics.mean(len(run["dev"]) for run in good)
    loss = statistics.mean(min(run["dev_loss"]) for run in good)
    cells = [
        (f"{len(good)} + {len(test)} fresh" if test and answer.fresh else str(len(good))) + f" ({bad})" * bool(bad),
        *(f"{epochs:.0f}", f"{loss:.4f}", mean_and_spread(dev), mean_and_spread(test)),
        *_costs(good),
    ]
    cost = task.gain(0.0, statistics.mean(dev)) if len(good) > 1 else loss
    return (-len(good), -epochs, cost), f"{start}{' | '.join(cells)} |"
