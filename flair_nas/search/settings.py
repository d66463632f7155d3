"""Settings that do not depend on the strategy, and the base of those that a strategy has for itself.

Reading them needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.genotype import CARRIES, DEFAULT_CARRY, DEFAULT_RECURRENCE, GATE_FORMS, RECURRENCES, Genotype
from flair_nas.genotype.order import parse_order
from flair_nas.settings.fields import COUNT, PROBABILITY, changed, device_setting, part, setting
from flair_nas.settings.optimizer import WARMUP_HELP, find_high_rate

PLACES = ("text", "data_root", "device", "storage", "after")
"""Settings of places on a machine."""
OF_CELLS = (
    *("learn", "nodes", "edges_per_node", "history", "gate", "gate_links", "carry", "recurrence", "fixed"),
    *("init_range", "input_dropout", "recurrent_dropout", "directions"),
)
"""Settings that have no meaning where sublayers are searched."""


def parse_genotype(text: str) -> Genotype:
    """Parse the genotype of a setting: a source for `load_genotype`, then options of the genotype after commas."""
    from flair_nas.library.layer_spec import parse_layer_spec

    genotype, numbers = parse_layer_spec(text, (), name="genotype")
    if numbers:
        raise FlairNasError(f"{text}: {', '.join(numbers)} has no meaning here; the search has settings of its own")
    return genotype


@dataclass
class TransformerSettings:
    """Settings of a search of the order of a transformer's sublayers (Press et al., ACL 2020).

    Example:
        >>> from flair_nas import PredictorSettings, SearchConfig, TransformerSettings
        >>> transformer = TransformerSettings(sublayers="transformer:sandwich-0-6", optimizer="adamw", warmup_steps=100)
        >>> given = {"strategy": PredictorSettings(child_steps=[300]), "learning_rate": 0.001}
        >>> SearchConfig(text="demo", transformer=transformer, **given).transformer.optimizer
        'adamw'
    """

    sublayers: str | None = setting(
        None, "transformer:ORDER, as transformer:sandwich-0-6: the search is for the order of its sublayers, in place "
        "of a cell"
    )  # fmt: skip
    optimizer: str = setting("sgd", "sgd, or where candidates train alone adamw", choices=("sgd", "adamw"))
    warmup_steps: int = setting(0, f"of each candidate: {WARMUP_HELP}", low=0, high=10**9)

    def problems(self, config: CommonSettings, strategy: StrategySettings) -> list[str]:
        """Return a sentence for each contradiction; settings out of range may have any type."""
        alone = "needs a strategy that trains candidates alone, such as predictor"
        problems = [] if strategy.trained_alone else [f"{name} {alone}" for name in changed(self)]
        if config.objective != "several":  # there each task has its own
            problems += find_high_rate(self.optimizer, config.learning_rate)
        if self.sublayers is None:
            return problems
        of_cells = [name for name in OF_CELLS if hasattr(config, name)]
        problems += [f"{name} is of cells: leave it out with sublayers" for name in changed(config, *of_cells)]
        if config.objective not in ("text", "tagging"):
            problems.append(f"objective {config.objective} has cells alone: sublayers are searched on text or tags")
        try:
            letters = parse_order(self.sublayers, "sublayers").letters
        except FlairNasError as error:
            return [*problems, str(error)]
        single = f"sublayers {self.sublayers} has one order only: give it letters of both kinds"
        return problems + [single] * (len({*letters}) == 1)


@dataclass
class CommonSettings:
    """Settings that do not depend on the strategy."""

    objective: str = setting("text", "task of the model (text): see the sections below")
    learn: str = setting("intra", "part to search: the cell (intra), its gates (inter), or both in turn (joint)",
                         choices=("intra", "inter", "joint"))  # fmt: skip
    hidden_size: int = setting(300, "hidden size H, and on text size D of the embedding", **COUNT)
    batch_size: int = setting(256, "sequences in a batch, over all processes", low=2, high=1_000_000)
    epochs: int = setting(40, "passes over the training data", **COUNT)
    seed: int = setting(1, "seed of everything random", low=0, high=2**32 - 1)
    precision: str = setting("float32", "float32, or bfloat16 products with float32 weights and states",
                             choices=("float32", "bfloat16"))  # fmt: skip
    device: str | None = device_setting()

    nodes: int = setting(
        8, "nodes of the cell that is searched (learn inter: those of --fixed)", low=1, high=100,
        section="cell and gates",
    )  # fmt: skip
    edges_per_node: int = setting(1, "edges into a node of the genotype, n", low=1, high=4)
    history: int = setting(0, "history length m of the inter-cell gates; 0 for none", low=0, high=100)
    gate: str = setting("residual", f"form of the gates: {', '.join(GATE_FORMS)}", choices=GATE_FORMS)
    gate_links: bool = setting(True, "the nodes of a gate read one another; otherwise each its own entry alone")
    carry: str = setting(
        DEFAULT_CARRY, "with gates, the past in s_0: h (ungated), or h times the state gate (gated)", choices=CARRIES
    )
    recurrence: str = setting(
        DEFAULT_RECURRENCE, "s_0 depends on the past through a matrix (full) or a vector (elementwise, without gates)",
        choices=RECURRENCES,
    )  # fmt: skip
    fixed: str | None = setting(
        None, "genotype (options after commas) with the fixed cell (learn inter) or gates (learn intra)"
    )

    learning_rate: float = setting(
        10.0, "learning rate of the model weights", low=1e-12, high=1e6, section="model weights"
    )
    schedule: str = setting(
        "constant",
        "schedule of that learning rate: constant, or cosine down to 0 (of each candidate, if trained alone)",
        choices=("constant", "cosine"),
    )
    weight_decay: float = setting(5e-7, "weight decay of the model weights", low=0, high=1)
    clip: float = setting(0.25, "largest norm of the model's gradient; a larger one is clipped", low=1e-12, high=1e12)
    recurrent_dropout: float = setting(0.25, "variational dropout of h and the nodes' states", **PROBABILITY)
    input_dropout: float = setting(0.75, "variational dropout of the layer's input x", **PROBABILITY)
    init_range: float | None = setting(
        None, "weights of the layer start uniform in +-this (1.17 / sqrt(H), as 0.04 in the papers' code at 850; where "
        "one cell is trained at a time 1.5 / sqrt(H))", low=1e-12, high=10,
    )  # fmt: skip
    parts: int = setting(1, "parts of a batch, computed one by one to save memory; gradients add up", **COUNT)

    transformer: TransformerSettings = part(TransformerSettings, "a transformer's sublayers")

    def __post_init__(self) -> None:
        self._parsed: dict[str | None, Genotype | None] = {None: None}

    def fixed_genotype(self) -> Genotype | None:
        """Return the genotype of `fixed` as it was when these settings were made; a file may have changed since."""
        if self.fixed not in self._parsed:
            self._parsed[self.fixed] = parse_genotype(self.fixed or "")
        return self._parsed[self.fixed]

    def portable(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, without places, for a genotype's provenance."""
        return {name: value for name, value in changed(self).items() if name not in PLACES}

    def common_problems(self) -> list[str]:
        """Return a sentence for each contradiction among these settings; some may have any type."""
        intra = self.learn == "intra"
        fixed = None
        problems = list[str]()
        try:
            fixed = self.fixed_genotype()
        except FlairNasError as error:
            problems = [f"fixed: {error}"]
        checks = [
            (not intra and not self.history, f"learn {self.learn} needs gates to search: history must be at least 1"),
            (self.learn == "inter" and self.fixed is None,
             "learn inter needs the cell that stays as it is: fixed must name a genotype"),
            (intra and self.history,
             "learn intra does not learn gates: history must be 0 (fixed can name a genotype with gates)"),
            (self.learn == "joint" and self.fixed is not None,
             "learn joint searches cell and gates: fixed must be left out"),
            (intra and changed(self, "gate"),
             f"gate {self.gate} is of gates that are searched: learn must be inter or joint (those of fixed have "
             "their own)"),
            (self.recurrence == "elementwise" and (self.history or self.fixed is not None),
             "recurrence elementwise is of cells without gates: history must be 0, and fixed left out"),
            (not self.gate_links and not self.history, "gate_links belongs to gates: history must be at least 1"),
            (fixed and fixed.recurrence == "elementwise",
             f"fixed {self.fixed} has recurrence=elementwise, which goes with no gates"),
            (intra and fixed and fixed.state_gate is None and fixed.input_gate is None,
             f"fixed {self.fixed} has no gates, and learn intra searches its cell anew"),
        ]  # fmt: skip
        return [*(message for wrong, message in checks if wrong), *problems]


class StrategySettings:
    """Base of the settings of a strategy: a dataclass in its module, above the strategy."""

    relaxation: str | None = None  # grouping of the softmax of the supernet; None if it runs one cell at a time
    warmup_epochs: int = 0  # number of first epochs in which the model weights learn alone
    convergence: float = 0.0  # more than 0 if the search can end before its last epoch
    candidates: list[str] | tuple[()] = ()  # genotypes of the user, as sources for `load_genotype`
    trained_alone: bool = False  # True if each candidate is trained on its own, from the first weights

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for each setting that contradicts others; settings out of range may have any type."""
        return []

    def extendable(self, config: CommonSettings) -> bool:
        """Return True if the first epochs do not depend on the number of epochs."""
        return config.schedule == "constant"  # otherwise the learning rate falls until the last

    def method(self, config: CommonSettings) -> str:
        """Return the method in a few words, for a genotype's provenance; empty for the name of the strategy."""
        return ""


@dataclass
class ContinualSettings:
    """Settings of a search that goes on from the weights of another, or whose weights another one takes.

    Example:
        >>> from flair_nas import ContinualSettings, SearchConfig
        >>> SearchConfig(text="demo", continual=ContinualSettings(sparsity=0.001)).continual.sparsity
        0.001
    """

    after: str | None = setting(None, "folder of a finished search, from whose model weights this one goes on (CAS)")
    sparsity: float = setting(
        0.0, "CAS: weight of the row norms of what the next search takes, with --after of its change", low=0, high=1e6
    )
    orthogonality: float = setting(
        0.0, "CAS: weight of the overlap of that change with the weights before it", low=0, high=1e6
    )
    retrain_epochs: int = setting(
        0, "the last of the epochs, in which the derived genotype trains alone with the shared weights", low=0,
        high=1_000_000,
    )  # fmt: skip

    def problems(self, config: CommonSettings, strategy: StrategySettings, unshared: str) -> list[str]:
        """Return a sentence for each contradiction; `unshared` is the setting that lets cells share no weights."""
        retrained = bool(self.retrain_epochs)
        warmup = strategy.warmup_epochs
        checks = [
            (self.orthogonality and self.after is None,
             "orthogonality is to the weights of an earlier search: after must name its folder"),
            (retrained and warmup >= config.epochs - self.retrain_epochs,
             f"retrain_epochs {self.retrain_epochs} leaves nothing to search: epochs is {config.epochs}"
             + f", and warmup_epochs {warmup}" * bool(warmup)),
            (self.after is not None and config.learn == "inter",
             "after continues the search of a cell: learn must be intra or joint"),
            (retrained and (config.learn == "inter" or strategy.convergence > 0),
             "retrain_epochs goes neither with learn inter nor with convergence"),
            *((unshared, f"{name} needs weights that all cells of one task share, which {unshared} has not")
              for name in changed(self, "after", "sparsity", "retrain_epochs")),
        ]  # fmt: skip
        return [message for wrong, message in checks if wrong]
