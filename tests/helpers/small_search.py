"""Small searches for tests: a text, settings, an objective, and searches in several processes."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import killing
import torch
from killing import contents, differences, write_text

from flair_nas.drawing import charts
from flair_nas.language_model.text.corpus import load_text
from flair_nas.search.build import make_strategy
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives.text import TextObjective, build
from flair_nas.search.processes import make_accelerator
from flair_nas.search.registry import strategy_settings
from flair_nas.search.strategies.gradient import GradientStrategy
from flair_nas.settings.fields import get_kinds, make_settings

SMALL: dict[str, Any] = {
    "hidden_size": 6,
    "nodes": 2,
    "batch_size": 4,
    "bptt": 12,
    "epochs": 2,
    "learning_rate": 2.0,
    "dropout": 0.3,
    "input_dropout": 0.2,
    "recurrent_dropout": 0.2,
    "device": "cpu",
}
SAMPLES: dict[str, Any] = {"samples": 3, "sample_segments": 2}
"""Settings of the strategies that have them."""
NO_DROPOUT: dict[str, Any] = {
    name: 0.0 for name in ("dropout", "input_dropout", "recurrent_dropout", "embedding_dropout")
}
JOINT: dict[str, Any] = {"learn": "joint", "history": 2}
KINDS: dict[str, dict[str, Any]] = {
    "first": {},
    "second": {"order": 2, "relaxation": "darts"},
    "joint": {**JOINT, "phase_steps": 3},
    "inter": {"learn": "inter", "history": 2, "fixed": "relu0-tanh1"},
    "fixed gates": {"fixed": "relu0-tanh1/state=tanh-relu+tanh1/input=tanh-relu"},
    "random-shared": {"strategy": "random-shared"},
    "random-independent": {"strategy": "random-independent"},
    "random-shared with gates": {"strategy": "random-shared", **JOINT},
    "random-independent with gates": {"strategy": "random-independent", **JOINT},
    "halving": {"strategy": "random-independent", "samples": 1, "candidates": ["relu0-tanh1"], "rungs": 2},
    "evolution": {"strategy": "evolution", "child_steps": [1], "population": 2, "tournament": 2},
    "hurdles with gates": {
        "strategy": "evolution",
        "child_steps": [1, 2],
        "population": 2,
        "tournament": 2,
        "removal": "worst",
        "hurdle_every": 2,
        **JOINT,
    },
    "local-search": {"strategy": "local-search", "child_steps": [2], "candidates": ["relu0-tanh1"]},
    "predictor": {"strategy": "predictor", "child_steps": [2], "candidates": ["relu0-tanh1"]},
    "enas": {"strategy": "enas", "controller_steps": 2, "controller_draws": 2, "controller_size": 4},
    "decided": {
        "selection": "perturbation",
        "selection_steps": 1,
        "sampling": "straight-through",
        "recurrence": "elementwise",
    },
}


def small(text: Path | None, /, **changes: Any) -> SearchConfig:
    """Settings of a search of a second, by names as in a file."""
    return make_settings(SearchConfig, {**with_samples(SMALL, changes), "text": None if text is None else str(text)})


def with_samples(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with changes, and with few samples where the strategy draws some."""
    own = strategy_settings().get(changes.get("strategy", "gradient"))
    few = {name: value for name, value in SAMPLES.items() if own is not None and name in get_kinds(own)}
    return {**settings, **few, **changes}


def objective_of(config: SearchConfig, *, double: bool = False, batch_norm: bool = True) -> TextObjective:
    """The objective that a search with these settings has, in training mode."""
    objective = build(config, load_text(config.text), make_accelerator("cpu", config.precision))
    if not batch_norm:
        objective.supernet.norm = None
    if double:
        objective.module.double()
    objective.module.train()
    return objective


def strategy_of(config: SearchConfig) -> Any:
    """The strategy that a search with these settings has."""
    return make_strategy(objective_of(config), config)


def run_whole(strategy: Any) -> Any:
    """Runs all steps of a strategy, as the trainer does."""
    for epoch in range(1, strategy.config.epochs + 1):
        strategy.objective.restart()
        for step in range(strategy.objective.steps(epoch)):
            strategy.step(epoch, step)
    strategy.finish(False)
    return strategy


def flat(tensors: Any) -> torch.Tensor:
    """All numbers of some tensors."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def assert_same_runs(left: Path, right: Path) -> None:
    """History, genotype and checkpoints are the same to the bit."""
    found = list(differences(contents(left), contents(right)))
    assert not found, found


def no_picture(*arguments: Any) -> None:
    """In place of `draw_progress`, which takes longer than a small search."""


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """As pytest's `monkeypatch`, which other processes do not have."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Stop:
    """In place of a strategy's step: does something before that step of that epoch."""

    def __init__(self, epoch: int, step: int, action: Callable[[Any], None], owner: Any = GradientStrategy) -> None:
        self.place, self.action, self.owner, self.step = (epoch, step), action, owner, owner.step

    def __enter__(self) -> None:
        place, action, step = self.place, self.action, self.step

        def stopping(strategy: Any, *now: int) -> Any:
            if now == place:
                action(strategy)
            return step(strategy, *now)

        self.owner.step = stopping

    def __exit__(self, *_: object) -> None:
        self.owner.step = self.step


def interrupt(strategy: Any) -> None:
    raise KeyboardInterrupt


# --- several processes ---


class Outcome(NamedTuple):
    """How a process ended: with what its function gave, or an error, or by a signal."""

    result: Any
    error: str
    exitcode: int | None
    log: list[str]


class Processes:
    """Processes of one search, that know of each other as torchrun tells them.

    Args:
        folder: for their answers.
        work: is called in each, with the arguments.
    """

    def __init__(self, folder: Path, work: Callable[..., Any], *arguments: Any, count: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.answers = [folder / f"{rank}.pt" for rank in range(count)]
        environments = [
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "FLAIR_NAS_CACHE": os.environ["FLAIR_NAS_CACHE"],
            }
            for rank in range(count)
        ]
        context = killing.processes()
        self.processes = [
            context.Process(target=_answer, args=(environment, answer, work, arguments), daemon=True)
            for environment, answer in zip(environments, self.answers)
        ]
        for process in self.processes:
            process.start()

    def outcomes(self, seconds: float = 60) -> list[Outcome]:
        """Waits for all; a process that hangs is an error."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        hanging = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        for process in self.processes:
            process.kill()
            process.join()
        assert not hanging, f"processes {hanging} were still there after {seconds} s"
        found = []
        for process, path in zip(self.processes, self.answers):
            answer = torch.load(path, weights_only=False) if path.exists() else {}
            found.append(
                Outcome(answer.get("result"), answer.get("error", ""), process.exitcode, answer.get("log", []))
            )
        return found


def together(folder: Path, work: Callable[..., Any], *arguments: Any, count: int = 2) -> list[Any]:
    """What each process gave; none may fail."""
    found = Processes(folder, work, *arguments, count=count).outcomes()
    errors = [outcome.error for outcome in found]
    assert not any(errors), errors
    return [outcome.result for outcome in found]


def _answer(environment: dict[str, str], answer: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("flair_nas")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    found: dict[str, Any] = {}
    try:
        with patched(charts, "draw_progress", no_picture):
            found["result"] = work(*arguments)
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
    found["log"] = records
    torch.save(found, answer)


__all__ = ["contents", "differences", "write_text"]
