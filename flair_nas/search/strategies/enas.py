"""ENAS (Pham et al., ICML 2018): a controller learns by REINFORCE which architectures do well with shared weights."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flair_nas.errors import NotFiniteError
from flair_nas.genotype import OPERATIONS, Edge, Genotype
from flair_nas.search.bilevel import REMEDY, Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.protocols import JSON, Objective, StepFigures
from flair_nas.search.strategies.random_cells import SharedRandomSearch

log = logging.getLogger("flair_nas")

_KEPT = OPERATIONS[1:]  # all but drop
DRAWS = 10
"""Draws at the end for each candidate, as the controller may draw a cell more than once."""


class Draw(NamedTuple):
    """A cell that a controller drew.

    Args:
        genotype: the cell.
        log_probability: log p, the sum of the logarithms of the 2N choices.
        entropy: their entropy Σ -p log p; of what was drawn, as in the authors' code.
        spread: mean entropy of the distributions drawn from, each divided by that of a uniform one.
    """

    genotype: Genotype
    log_probability: Tensor
    entropy: Tensor
    spread: float


class Controller(nn.Module):
    """Distribution over cells of one edge a node: an LSTM draws, in turn, the tail and the operation of each node.

    The equations are those of the ENAS authors' repaired code (enas_lm), with its names in brackets.

    Args:
        nodes: number of nodes N.
        size: size d of the LSTM.
        tanh_constant: κ, bound of a logit.
        temperature: τ, that logits are divided by.
        locality: λ; the logit of a tail that is k nodes back falls by k² / λ. None for no such term.

    Shape of the parameters:
        lstm [2d, 4d] (w_lstm), rows x then h, columns i, f, o, g; start [d] (g_emb); operations [4, d] (w_emb) in the
        order tanh, relu, sigmoid, identity; tail_keys [d, d] (attn_w_1); tail_query [d, d] (attn_w_2); tail_score [d]
        (attn_v).
    """

    def __init__(
        self,
        nodes: int = 8,
        size: int = 64,
        tanh_constant: float = 2.25,
        temperature: float = 5.0,
        locality: float | None = 6.0,
    ) -> None:
        super().__init__()
        self.nodes, self.size = nodes, size
        self.tanh_constant, self.temperature, self.locality = tanh_constant, temperature, locality
        self.lstm = nn.Parameter(torch.empty(2 * size, 4 * size))
        self.start = nn.Parameter(torch.empty(size))
        self.operations = nn.Parameter(torch.empty(len(_KEPT), size))
        self.tail_keys = nn.Parameter(torch.empty(size, size))
        self.tail_query = nn.Parameter(torch.empty(size, size))
        self.tail_score = nn.Parameter(torch.empty(size))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights from U(±0.01)."""
        for weight in self.parameters():
            nn.init.uniform_(weight, -0.01, 0.01, generator=generator)

    def score(self, genotype: Genotype) -> tuple[Tensor, Tensor]:
        """Compute how likely a cell is to be drawn.

        Args:
            genotype: a cell of N nodes with one edge each.

        Returns:
            log p, the sum of the logarithms of the 2N choices, and their entropy Σ -p log p, scalars.

        Raises:
            ValueError: a cell of another space.
        """
        if len(genotype.nodes) != self.nodes or any(len(edges) != 1 for edges in genotype.nodes):
            raise ValueError(f"this controller scores cells of {self.nodes} nodes with one edge each, got {genotype}")
        choices = iter([index for (edge,) in genotype.nodes for index in (edge.tail, _KEPT.index(edge.op))])
        drawn = self._walk(lambda logits: next(choices))
        return drawn.log_probability, drawn.entropy

    def sample(self, generator: torch.Generator) -> Draw:
        """Draw a cell."""
        return self._walk(lambda logits: int(torch.multinomial(logits.detach().softmax(0), 1, generator=generator)))

    @torch.no_grad()
    def likeliest(self) -> Genotype:
        """Return the cell of the likeliest choices, each given those before."""
        return self._walk(lambda logits: int(logits.argmax())).genotype

    def _walk(self, choose: Callable[[Tensor], int]) -> Draw:
        """Make the 2N choices."""
        x: Tensor = self.start
        h = c = torch.zeros_like(x)
        states, keys = [h], [h]  # of the nodes so far; s_0 has zeros
        logs: list[Tensor] = []
        spreads: list[float] = []
        edges: list[tuple[Edge, ...]] = []

        def decide(logits: Tensor) -> int:
            choice, log_shares = choose(logits), logits.log_softmax(0)
            logs.append(log_shares[choice])
            if len(logits) > 1:
                spreads.append(-float((log_shares.exp() * log_shares).sum().detach()) / math.log(len(logits)))
            return choice

        for node in range(1, self.nodes + 1):
            h, c = self._cell(x, h, c)
            query = torch.tanh(torch.stack(keys) + h @ self.tail_query)  # [node, d]
            logits = self._bounded(query @ self.tail_score)  # [node]
            if self.locality is not None:
                logits = logits - (node - torch.arange(node)).to(logits) ** 2 / self.locality
            tail = decide(logits)
            x = states[tail] / (0.1 + node - tail)
            states.append(h)
            keys.append(h @ self.tail_keys)
            h, c = self._cell(x, h, c)
            operation = decide(self._bounded(self.operations @ h))
            x = self.operations[operation]
            edges.append((Edge(_KEPT[operation], tail),))
        log_p = torch.stack(logs)  # [2N]
        return Draw(Genotype(tuple(edges)), log_p.sum(), -(log_p.exp() * log_p).sum(), sum(spreads) / len(spreads))

    def _bounded(self, logits: Tensor) -> Tensor:
        return self.tanh_constant * torch.tanh(logits / self.temperature)

    def _cell(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = (torch.cat([x, h]) @ self.lstm).chunk(4)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        return torch.sigmoid(o) * torch.tanh(c), c


class ControllerSearch(SharedRandomSearch):
    """ENAS: model weights that all cells share, and a controller that draws the cells, learn in turn.

    Each training step draws a cell and updates the weights. At the end of an epoch the controller makes
    `controller_steps` steps of Adam. For each it draws `controller_draws` cells, gives each the reward
    r = C exp(-l) + w entropy for its loss l on a validation batch, and descends the mean of -(r - b) log p. b is the
    running mean of the rewards, and C makes the mean of the first ones 1. At the end `samples` cells are drawn and
    compared with the shared weights.
    """

    finishing = "comparing the candidates"

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for gates and several edges, and for what `Candidates` refuses."""
        checks = {
            "strategy enas searches cells without gates: learn must be intra": config.learn != "intra",
            "strategy enas draws one edge for each node: edges_per_node must be 1": config.edges_per_node > 1,
        }
        return SharedRandomSearch.contradictions(config) + [message for message, wrong in checks.items() if wrong]

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        super().__init__(objective, config, reduce)
        self.generator = torch.Generator().manual_seed(config.seed)  # all processes draw alike
        self.controller = Controller(config.nodes, config.controller_size, locality=config.controller_locality or None)
        self.controller.reset_parameters(self.generator)
        self.adam = torch.optim.Adam(self.controller.parameters(), lr=config.controller_learning_rate)
        self.prior = copy.deepcopy(self.controller)  # untrained
        self.offset: float | None = None  # log C
        self.mean_reward = 0.0  # b
        self.drawn: list[Genotype] = []  # the candidates, at the end
        self.last: JSON = {}  # figures of the last epoch
        self.supernet.choose(self.architecture(0))

    @torch.no_grad()
    def draw(self) -> Genotype:
        """Draw the cell of the present step from the controller."""
        return self._sample().genotype

    def _sample(self) -> Draw:
        drawn = self.controller.sample(self.generator)
        return drawn._replace(genotype=dataclasses.replace(drawn.genotype, recurrence=self.config.recurrence))

    def architecture(self, number: int) -> Genotype:
        """Return the candidate of a number; before candidates are drawn, the likeliest cell."""
        if self.drawn:
            return self.drawn[number]
        return dataclasses.replace(self.controller.likeliest(), recurrence=self.config.recurrence)

    def step(self, epoch: int, step: int) -> StepFigures:
        """Update the weights of a cell; at the end of an epoch let the controller learn."""
        self.drawn = []
        figures = super().step(epoch, step)
        if step + 1 == self.steps(epoch):
            draws = [self._learn(epoch, number) for number in range(self.config.controller_steps)]
            cells = {draw.genotype for batch in draws for draw, _ in batch}
            rewards = [reward for batch in draws for _, reward in batch]
            spreads = [draw.spread for batch in draws for draw, _ in batch]
            self.last = {"reward": _mean(rewards), "spread": _mean(spreads), "different_cells": len(cells)}
            self.last["moved"] = _mean([self._distance(draw) for draw, _ in draws[-1]])
            self.supernet.choose(self.architecture(0))
        return figures

    def measure_end(self) -> float:
        """Measure a step of the controller, and return the seconds of all in an epoch."""
        started = time.perf_counter()
        self._learn(1, 0)
        return (time.perf_counter() - started) * self.config.controller_steps

    @torch.no_grad()
    def _distance(self, draw: Draw) -> float:
        """Return how much likelier a draw was than under the untrained controller, in nats."""
        return float(draw.log_probability) - float(self.prior.score(draw.genotype)[0])

    def _learn(self, epoch: int, number: int) -> list[tuple[Draw, float]]:
        """Make a step of the controller; return its draws and their rewards.

        Raises:
            NotFiniteError: no draw has a finite loss.
        """
        count = self.config.controller_draws
        draws = [self._sample() for _ in range(count)]
        losses = [self._loss(draw.genotype, epoch, number * count + place) for place, draw in enumerate(draws)]
        finite = [loss for loss in losses if math.isfinite(loss)]
        if not finite:
            raise NotFiniteError(
                f"epoch {epoch}: none of the {count} cells that the controller drew has a finite loss. {REMEDY}"
            )
        if len(finite) < count:
            log.warning(
                "epoch %d: %d of %d cells without a finite loss have no reward", epoch, count - len(finite), count
            )
        if self.offset is None:
            self.offset = math.log(len(finite)) - float(torch.logsumexp(-torch.tensor(finite, dtype=torch.float64), 0))
            self.mean_reward = 1.0
        rewards, total = [], torch.zeros(())
        for draw, loss in zip(draws, losses):
            gained = math.exp(self.offset - loss) if math.isfinite(loss) else 0.0
            rewards.append(gained + self.config.controller_entropy * float(draw.entropy.detach()))
            total = total - draw.log_probability * (rewards[-1] - self.mean_reward) / count
            self.mean_reward += (1 - self.config.controller_decay) * (rewards[-1] - self.mean_reward)
        self.adam.zero_grad()
        total.backward()
        self.adam.step()
        return list(zip(draws, rewards))

    @torch.no_grad()
    def _loss(self, genotype: Genotype, epoch: int, place: int) -> float:
        """Compute the loss of a cell on a validation batch, without dropout and from a state of zeros."""
        self.supernet.choose(genotype)
        module = self.objective.module.eval()
        parts = self.objective.validation_batch(epoch, place)
        total = torch.stack([self.objective.validation_loss(part).double().cpu() for part in parts]).mean()
        module.train()
        if self.reduce is not None:
            self.reduce([total])
        return float(total)

    def finish(self, progress: bool) -> None:
        """Draw candidates, all different if a few draws find them, and compare them with the shared weights."""
        before = self.generator.get_state()  # a search that is extended goes on from here
        drawn: dict[Genotype, None] = {}  # in their order
        for _ in range(DRAWS * self.config.samples):
            if len(drawn) == self.config.samples:
                break
            drawn[self.draw()] = None
        self.drawn = [*drawn]
        self.generator.set_state(before)
        self.samples = len(self.drawn)
        super().finish(progress)

    def figures(self) -> JSON:
        """Return the best score of the last comparison, and what the controller did in the last epoch."""
        return {**super().figures(), **self.last, "mean_reward": self.mean_reward}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best candidate, and on a controller that learned nothing or one cell."""
        note = ""
        if self.last and self.last["moved"] < 0.1:
            chains = ", which prefers chains" if self.config.controller_locality else ""
            advice = "; raise --controller-learning-rate" if self.config.controller_learning_rate else ""
            note = f"the controller draws as it did untrained{chains}{advice}"
        elif self.last and self.last["spread"] < 0.05:
            note = "the controller draws nearly the same cell each time; lower --controller-learning-rate"
        return "; ".join(filter(None, (super().verdict(history), note)))

    def state_dict(self) -> JSON:
        """Return scores, progress and the controller."""
        names = ("offset", "mean_reward", "last")
        return super().state_dict() | {
            "controller": self.controller.state_dict(),
            "adam": self.adam.state_dict(),
            "generator": self.generator.get_state(),
            "drawn": [genotype.to_dict() for genotype in self.drawn],
            **{name: getattr(self, name) for name in names},
        }

    def load_state_dict(self, state: JSON) -> None:
        """Restore scores, progress and the controller."""
        super().load_state_dict(state)
        self.controller.load_state_dict(state["controller"])
        self.adam.load_state_dict(state["adam"])
        self.generator.set_state(state["generator"])
        self.offset, self.mean_reward, self.last = state["offset"], state["mean_reward"], dict(state["last"])
        self.drawn = [Genotype.from_dict(genotype) for genotype in state["drawn"]]
        self.supernet.choose(self.architecture(0))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
