"""The controller of ENAS (Pham et al., ICML 2018), which draws cells and learns from their losses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flair_nas.genotype import OPERATIONS, Edge, Genotype

_KEPT = OPERATIONS[1:]  # all but drop
_BOUND, _TEMPERATURE = 2.25, 5.0  # of the logits (tanh_constant and temperature)


class Draw(NamedTuple):
    """A cell that a controller drew."""

    genotype: Genotype
    log_probability: Tensor  # log p, the sum of the logarithms of the 2N choices
    entropy: Tensor  # Σ -p log p over the choices, as in the authors' code
    spread: float  # mean entropy of the distributions drawn from, each divided by that of a uniform one


class Controller(nn.Module):
    """Distribution over cells of one edge a node: an LSTM draws, in turn, the tail and the operation of each node.

    The equations are those of the ENAS authors' repaired code (enas_lm), with its names in brackets.

    Args:
        nodes: number of nodes N.
        size: size d of the LSTM.
        locality: λ; the logit of a tail that is k nodes back falls by k² / λ. None for no such term.

    Shape of the parameters:
        lstm [2d, 4d] (w_lstm), rows x then h, columns i, f, o, g. start [d] (g_emb). operations [4, d] (w_emb), rows
        tanh, relu, sigmoid, identity. tail_keys [d, d] (attn_w_1). tail_query [d, d] (attn_w_2). tail_score [d]
        (attn_v).
    """

    def __init__(self, nodes: int = 8, size: int = 64, locality: float | None = 6.0) -> None:
        super().__init__()
        self.nodes, self.locality = nodes, locality
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
        """Compute log p of a cell of N nodes with one edge each, and the entropy of its 2N choices, scalars."""
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
        return _BOUND * torch.tanh(logits / _TEMPERATURE)

    def _cell(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = (torch.cat([x, h]) @ self.lstm).chunk(4)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
        return torch.sigmoid(o) * torch.tanh(c), c


class Reinforce:
    """REINFORCE for a controller, with a running mean of the rewards as baseline (Pham et al., section 2.2).

    A draw with loss l has the reward r = C exp(-l) + w entropy. A step of Adam descends the mean of -(r - b) log p. b
    is the running mean of the rewards, and C makes the mean of the first ones 1.

    Args:
        controller: the controller; its weights are drawn.
        seed: the seed of weights and cells.
        learning_rate: that of Adam.
        entropy: the weight w.
        decay: of the running mean.
    """

    def __init__(self, controller: Controller, seed: int, learning_rate: float, entropy: float, decay: float) -> None:
        self.controller, self.entropy, self.decay = controller, entropy, decay
        self.generator = torch.Generator().manual_seed(seed)  # all processes draw alike
        controller.reset_parameters(self.generator)
        self.adam = torch.optim.Adam(controller.parameters(), lr=learning_rate)
        self.prior = copy.deepcopy(controller)  # untrained
        self.offset: float | None = None  # log C
        self.mean_reward = 0.0  # b

    def draw(self) -> Draw:
        """Draw a cell."""
        return self.controller.sample(self.generator)

    @torch.no_grad()
    def distance(self, draw: Draw) -> float:
        """Return log p of a draw, minus that under the untrained controller, in nats."""
        return float(draw.log_probability) - float(self.prior.score(draw.genotype)[0])

    def learn(self, draws: Sequence[Draw], losses: Sequence[float]) -> list[float]:
        """Make a step on draws and their losses, at least one of them finite; return the rewards."""
        if self.offset is None:
            finite = torch.tensor([loss for loss in losses if math.isfinite(loss)], dtype=torch.float64)
            self.offset = math.log(len(finite)) - float(torch.logsumexp(-finite, 0))
            self.mean_reward = 1.0
        rewards, total = [], torch.zeros(())
        for draw, loss in zip(draws, losses):
            gained = math.exp(self.offset - loss) if math.isfinite(loss) else 0.0
            rewards.append(gained + self.entropy * float(draw.entropy.detach()))
            total = total - draw.log_probability * (rewards[-1] - self.mean_reward) / len(draws)
            self.mean_reward += (1 - self.decay) * (rewards[-1] - self.mean_reward)
        self.adam.zero_grad()
        total.backward()
        self.adam.step()
        return rewards

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {
            "controller": self.controller.state_dict(),
            "adam": self.adam.state_dict(),
            "generator": self.generator.get_state(),
            "offset": self.offset,
            "mean_reward": self.mean_reward,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        self.controller.load_state_dict(state["controller"])
        self.adam.load_state_dict(state["adam"])
        self.generator.set_state(state["generator"])
        self.offset, self.mean_reward = state["offset"], state["mean_reward"]
