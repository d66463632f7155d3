"""The answer of a selection: which layer, how much better than the next, how sure that is, and at which cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.experiments.config import budget_of, seconds_of
from flair_nas.experiments.counts import unpacked
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.statistics import compare, epoch_seconds, mean_and_spread
from flair_nas.experiments.tasks import Task
from flair_nas.runs.duration import duration
from flair_nas.select.candidates import Candidate, is_to_beat
from flair_nas.select.config import SelectSettings

_SURE = 0.95
_WIDE = 10.0  # points of F1


@dataclass(frozen=True)
class Scored:
    """A candidate that came to the end.

    Args:
        candidate: which one.
        figure: its mean over seeds, such as F1.
        interval: a 95 % confidence interval of that.
    """

    candidate: Candidate
    figure: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Answer:
    """What was found, on the test part (on dev, where there is none).

    Args:
        part: test or dev, as the task calls it.
        judges: the seeds of each that say so.
        winner: the better one of the layer to beat and of the best of the others on dev.
        other: the other one of the two; None if it did not work.
        interval: a 95 % confidence interval of the difference, above zero where the winner is better; None without
            another.
        probability: that the winner is better, over seeds and sentences; None without another.
        fresh: whether these seeds took no part in the choice.
    """

    part: str
    judges: tuple[int, ...]
    winner: Scored
    other: Scored | None
    interval: tuple[float, float] | None
    probability: float | None
    fresh: bool = True

    @property
    def seeds(self) -> int:
        """How many judge."""
        return len(self.judges)

    @property
    def found_nothing(self) -> bool:
        """Whether not even the better one has found anything, so that no figure here tells one layer from another."""
        return self.winner.figure == 0  # no perplexity is


def answer_of(
    task: Task,
    compared: Sequence[Candidate],
    runs: Sequence[Sequence[Mapping[str, Any]]],
    judges: Sequence[int],
    *,
    fresh: bool,
) -> Answer:
    """The answer, from the scores of all seeds.

    Args:
        task: what layers are compared on.
        compared: one that came to the end, or the layer to beat and the best of the others on dev.
        runs: of the ledger, one for each seed of each of them.
        judges: these seeds.
        fresh: whether these seeds took no part in the choice.
    """
    counts = [[unpacked(run["counts"]) for run in of] for of in runs]
    part, seeds = task.dev if runs[0][0]["test"] is None else "test", tuple(judges)
    scored = []
    for candidate, of in zip(compared, counts):
        figure = compare(of, [], task.figure)
        low, high = (min(max(end, 0.0), task.most) for end in figure.interval())
        scored.append(Scored(candidate, figure.value, (low, high)))
    if len(scored) == 1:
        return Answer(part, seeds, scored[0], None, None, None, fresh)
    gain = compare(counts[1], counts[0], task.figure, task.gain(1.0, 0.0))
    if gain.value <= 0:  # where nothing speaks for another layer, it is the one to beat
        scored.reverse()
        gain = gain._replace(value=0.0 - gain.value)
    return Answer(part, seeds, scored[1], scored[0], gain.interval(), gain.probability, fresh)


def paragraph_of(answer: Answer, config: SelectSettings) -> str:
    """The answer in words."""
    winner, other, task = answer.winner, answer.other, config.task
    to_beat = is_to_beat(winner.candidate.layer, config)
    words = [
        f"**{_verdict(answer, to_beat)}** {_name(winner.candidate)}: its {task.title} on {answer.part} is "
        f"{winner.figure:.2f} (95 %: {_range(winner.interval)}; "
        f"{answer.seeds} {'fresh ' * answer.fresh}seed{'s' * (answer.seeds > 1)})."
    ]
    if other is None:
        words.append("Nothing else came to the end to compare it with.")
    else:
        assert answer.interval is not None and answer.probability is not None
        gain = task.gain(winner.figure, other.figure)
        name = winner.candidate.layer.name
        how = f"{name} is {'better' if gain > 0 else 'worse'} by {abs(gain):.2f}"
        if f"{abs(gain):.2f}" == "0.00":
            how = "They are level"
        words.append(
            f"{_name(other.candidate)}, {'the best of the others' if to_beat else 'the layer to beat'}, has "
            f"{other.figure:.2f} (95 %: {_range(other.interval)}). {how} (95 %, above zero where it is "
            f"better: {_range(answer.interval)}); {_chance(answer, name, config)}."
        )
    if answer.found_nothing:
        words.append(f"{what_finds_more(config)}.")
    if answer.part != "test":
        words.append(f"There is no test part: these figures are of {answer.part}, which chose, and so too good.")
    wide = task.higher_is_better and winner.interval[1] - winner.interval[0] > _WIDE
    if wide or (answer.seeds == 1 and other is None):
        why = "one seed" if answer.seeds == 1 else "so few seeds and sentences"
        words.append(f"With {why}, differences of several points are chance.")
    return " ".join(words)


def line_of(answer: Answer, config: SelectSettings) -> str:
    """The answer in one line."""
    winner, other = answer.winner, answer.other
    verdict = _verdict(answer, is_to_beat(winner.candidate.layer, config))
    figures = f"{_name(winner.candidate)}, {config.task.title} {winner.figure:.2f} on {answer.part}"
    if other is not None:
        figures += f"; {_name(other.candidate)} has {other.figure:.2f}"
    return verdict if answer.found_nothing else f"{verdict} {figures}"


def what_finds_more(config: SelectSettings) -> str:
    """What to try where nothing was found; these settings want a folder of their own."""
    return (
        f"Train longer (--epochs {2 * config.epochs}, in another folder) and with a larger --budget, with other "
        "learning rates (--rates), or on more sentences"
    )


def _verdict(answer: Answer, to_beat: bool) -> str:
    if answer.found_nothing:
        return "Undecided, as nothing was found."
    if answer.probability is None:
        return "Keep" if to_beat else "No other has worked:"
    if answer.seeds == 1:
        return "Undecided, as of one seed each nobody can tell which layer is the better one. Ahead so far:"
    if to_beat:
        return "Keep"
    return "Take" if answer.probability >= _SURE else "Ahead, and that may be luck:"


def what_settles(answer: Answer, config: SelectSettings) -> str:
    """Return the flags with which `--resume` may settle an open answer, or an empty string if it is settled."""
    if answer.probability is None or answer.found_nothing:
        return ""
    if answer.seeds > 1 and (is_to_beat(answer.winner.candidate.layer, config) or answer.probability >= _SURE):
        return ""
    more = f"--fresh-seeds {max(10, 2 * config.fresh_seeds)} "
    seeds = more if answer.fresh and answer.seeds >= config.fresh_seeds else ""  # there was time for all
    return f"{seeds}--budget {budget_of(2 * (seconds_of(config.budget) or 0.0))}"


def _chance(answer: Answer, name: str, config: SelectSettings) -> str:
    flags = what_settles(answer, config)
    more = f"keep {config.rnn}, or --resume once with {flags}, which adds seeds" if flags else "more seeds tell more"
    if answer.seeds == 1:
        return f"that is over sentences alone; {more}"
    said = f"over seeds and sentences, {name} is the better one with a probability of {answer.probability:.2f}"
    sure = answer.probability is not None and answer.probability >= _SURE
    return said if sure else f"{said}, where {_SURE} would be sure; {more}"


def _name(candidate: Candidate) -> str:
    size = f"hidden size {candidate.layer.hidden_size}"
    return f"{candidate.layer.name} ({size}, learning rate {candidate.learning_rate:g})"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


def _cost(candidate: Candidate, ledger: Ledger) -> str:
    runs = [run for name, run in ledger.runs.items() if name.startswith(candidate.run(0)[:-1]) and "error" not in run]
    second, memory = epoch_seconds(runs), max(run["peak_memory_mb"] for run in runs)
    return f"{candidate.layer.name} takes {second:.1f} s an epoch, {runs[0]['parameters']:,} weights, {memory:,.0f} MB"


def _rates(candidates: Sequence[Candidate], ledger: Ledger, config: SelectSettings) -> str:
    """Which learning rate the layer to beat wants, in words; empty where it had one, or came to the end with one."""
    task, found = config.task, dict[float, dict[str, Any]]()
    for candidate in candidates:
        run = ledger.runs.get(candidate.run(config.seeds[0]), {})
        to_the_end = len(run.get("dev", ())) >= config.epochs or run.get("exhausted", False)
        if is_to_beat(candidate.layer, config) and to_the_end:
            found[candidate.learning_rate] = run
    if len(found) < 2:
        return ""
    figures = {rate: f"{task.best(run['dev']):.2f}" for rate, run in found.items()}
    rate = min(found, key=lambda rate: task.cost(found[rate], config.epochs))
    others = [f"{figure} with {other:g}" for other, figure in figures.items() if other != rate]
    what = "; ".join([f"{task.title} on {task.dev} {figures[rate]}", *others, "one seed"])
    return f"Of its learning rates, {config.rnn} does best with {rate:g} ({what})."


def report_of(
    answer: Answer,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    config: SelectSettings,
    cautions: Sequence[str] = (),
) -> str:
    """The answer, how far it can be relied on, how to use it, and a table of all that was tried, as Markdown."""
    task, winner = config.task, answer.winner.candidate
    lines = [f"# Recurrent layers for {getattr(config, task.data)}", "", paragraph_of(answer, config), ""]
    lines += [line for caution in cautions for line in (f"**Beware: {caution}.**", "")]
    compared = [scored.candidate for scored in (answer.winner, answer.other) if scored]
    lines += ["; ".join(_cost(candidate, ledger) for candidate in compared) + ".", ""]
    spent = f"{duration(ledger.seconds)} of {config.budget}"
    rates = _rates(candidates, ledger, config)
    if rates and not answer.found_nothing:
        lines += [rates, ""]
    fresh = " Fresh seeds took no part in the choice of layers." * answer.fresh
    lines += [f"The {task.model} is `model.pt`, that of the seed best on {task.dev}.{fresh} {spent}."]
    if not answer.found_nothing:
        lines += ["", *task.work.usage(winner.settings(config, config.seeds[0], config.epochs))]
    lines += [
        "",
        f"| layer | H | rate | seeds | epochs | least {task.dev} loss | best {task.dev} {task.title} | "
        f"test {task.title} | weights | s / epoch | MB |",
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    rows: list[tuple[tuple[float, ...], str]] = []
    for candidate in candidates:
        of_seeds = {seed: ledger.runs.get(candidate.run(seed)) for seed in [*config.seeds, *config.fresh()]}
        runs = [run for run in of_seeds.values() if run]
        good = [run for seed in config.seeds if (run := of_seeds[seed]) and "error" not in run]
        start = f"| {candidate.layer.name} | {candidate.layer.hidden_size} | {candidate.learning_rate:g} | "
        bad = "; ".join(f"failed: {' '.join(run['error'].split())}" for run in runs if "error" in run)
        if not good:
            rows.append(((0, 0, 0.0), f"{start}{bad or 'not begun'} | | | | | | | |"))
            continue
        dev = [task.best(run["dev"]) for run in good]
        judged = [run for seed in answer.judges if (run := of_seeds.get(seed)) and run.get("test") is not None]
        epochs = statistics.mean(len(run["dev"]) for run in good)
        loss = statistics.mean(min(run["dev_loss"]) for run in good)
        seeds = f"{len(good)} + {len(judged)} fresh" if judged and answer.fresh else str(len(good))
        figures = (
            f"{seeds}{f' ({bad})' * bool(bad)} | {epochs:.0f} | {loss:.4f} | {mean_and_spread(dev)} | "
            f"{mean_and_spread([run['test'] for run in judged])}"
        )
        memory = max(run["peak_memory_mb"] for run in good)
        figures += f" | {good[0]['parameters']:,} | {epoch_seconds(good):.1f} | {memory:,.0f} |"
        cost = task.gain(0.0, statistics.mean(dev)) if len(good) > 1 else loss
        rows.append(((-len(good), -epochs, cost), start + figures))
    lines += [text for _, text in sorted(rows)]
    searches = {name: run for name, run in ledger.runs.items() if name.startswith("search-") and "error" in run}
    lines += [line for name, run in searches.items() for line in ("", f"{name} failed: {run['error']}")]
    return "\n".join(lines) + "\n"


def shortened(report: str, rows: int = 10, named: Sequence[str] = ()) -> str:
    """A report with the first rows of its table, and those of the layers that are named, alone."""
    lines = report.splitlines(keepends=True)
    table = [number for number, line in enumerate(lines) if line.startswith("|")][2:]  # after its head
    dropped = [number for number in table[rows:] if lines[number].split(" | ")[0].removeprefix("| ") not in named]
    for number in dropped:
        lines[number] = ""
    left = len(dropped)
    return "".join(lines) + (f"... and {left} more layers and learning rates, in report.md\n" if left else "")
