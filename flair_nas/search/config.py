"""The settings of a search: one place for names, defaults, help texts and checks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

from flair_nas.errors import FlairNasError
from flair_nas.genotype import CARRIES, DEFAULT_CARRY, DEFAULT_RECURRENCE, GATE_FORMS, RECURRENCES, Genotype
from flair_nas.language_model.config import check_rising
from flair_nas.language_model.text.config import TextSettings
from flair_nas.search.registry import OBJECTIVES, SETTINGS, STRATEGIES, TRAINED_ALONE, strategy_class
from flair_nas.settings.fields import (
    COUNT,
    PROBABILITY,
    changed,
    device_setting,
    find_problems,
    raise_problems,
    setting,
)
from flair_nas.settings.resolve import preset_names

CONTROLLER = ("learning_rate", "steps", "draws", "entropy", "decay", "locality", "size")
STRATEGY_SETTINGS = {
    "rungs": ("random-independent",),
    "candidates": TRAINED_ALONE,
    "child_steps": ("evolution", "local-search"),
    **dict.fromkeys(("population", "tournament", "removal", "hurdle_every"), ("evolution",)),
    **dict.fromkeys((f"controller_{name}" for name in CONTROLLER), ("enas",)),
}
"""The strategies that have a setting, where not all of a kind have it."""

PLACES = ("text", "data_root", "device", "storage", "after")
"""Settings of places on a machine."""


def small_presets() -> list[str]:
    """Return the names of the presets for a small search on text."""
    others = ("conll", "several", "cas")
    names = [name for name in preset_names("search") if name.endswith("-small")]
    return [name for name in names if not any(other in name for other in others)]


def parse_genotype(text: str) -> Genotype:
    """Parse the genotype of a setting: a source for `load_genotype`, then options of the genotype after commas."""
    from flair_nas.library.layer_spec import parse_layer_spec

    genotype, numbers = parse_layer_spec(text, name="genotype")
    if numbers:
        raise FlairNasError(f"{text}: {', '.join(numbers)} has no meaning here; the search has settings of its own")
    return genotype


def _known_relaxation(name: str) -> str:
    from flair_nas.supernet.relaxation import RELAXATIONS  # its functions need torch

    return "" if name in RELAXATIONS else f"must be one of {', '.join(RELAXATIONS)}"


@dataclass
class SearchSettings:
    """Settings of every search.

    The defaults are those of I-DARTS on Penn Treebank, as far as they are published. Initialisation and learning rate
    differ, to suit any size.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.
    """

    SECTIONS: ClassVar[dict[str, str]] = {  # titles of the help's sections, by the first setting of each
        "nodes": "cell and gates",
        "after": "continual search",
        "learning_rate": "model weights",
        "arch_learning_rate": "architecture weights (strategy gradient)",
        "samples": "strategies that compare whole cells",
    }

    objective: str = setting("text", f"task of the model: {', '.join(OBJECTIVES)} (text)", choices=tuple(OBJECTIVES))
    strategy: str = setting("gradient", f"search strategy: {', '.join(STRATEGIES)}", choices=tuple(STRATEGIES))
    relaxation: str = setting(
        "i-darts", "grouping of the softmax: darts (per pair) or i-darts (per node)", check=_known_relaxation
    )
    order: int = setting(1, "order of the architecture gradient, 1 or 2", low=1, high=2)
    learn: str = setting("intra", "part to search: the cell (intra), its gates (inter), or both in turn (joint)",
                         choices=("intra", "inter", "joint"))  # fmt: skip
    hidden_size: int = setting(300, "hidden size H, and on text size D of the embedding", **COUNT)
    batch_size: int = setting(256, "sequences in a batch, over all processes", low=2, high=1_000_000)
    epochs: int = setting(40, "passes over the training data", low=0, high=1_000_000)
    seed: int = setting(1, "seed of everything random", low=0, high=2**32 - 1)
    precision: str = setting("float32", "float32, or bfloat16 products with float32 weights and states",
                             choices=("float32", "bfloat16"))  # fmt: skip
    device: str | None = device_setting()

    nodes: int = setting(8, "nodes of the cell that is searched (learn inter: those of --fixed)", low=1, high=100)
    edges_per_node: int = setting(1, "edges into a node of the genotype, n", low=1, high=4)
    avoid_first: bool = setting(False, "nodes after the first do not read s_0, as in the I-DARTS authors' code")
    most_identity: int | None = setting(
        None, "largest number of nodes with an identity edge in the genotype; the least certain take their next best",
        low=0, high=100,
    )  # fmt: skip
    history: int = setting(0, "history length m of the inter-cell gates; 0 for none", low=0, high=100)
    gate: str = setting("residual", f"form of the gates: {', '.join(GATE_FORMS)}", choices=GATE_FORMS)
    gate_links: bool = setting(True, "the nodes of a gate read one another; otherwise each its own entry alone")
    carry: str = setting(
        DEFAULT_CARRY, "with gates, the past in s_0: h (ungated), or h times the state gate (gated)",
        choices=CARRIES, before="gated",
    )  # fmt: skip
    recurrence: str = setting(
        DEFAULT_RECURRENCE, "s_0 depends on the past through a matrix (full) or a vector (elementwise, without gates)",
        choices=RECURRENCES,
    )  # fmt: skip
    fixed: str | None = setting(
        None, "genotype (options after commas) with the fixed cell (learn inter) or gates (learn intra)"
    )

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

    learning_rate: float = setting(10.0, "learning rate of SGD for the model weights", low=1e-12, high=1e6)
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
        "one cell is trained at a time 1.5 / sqrt(H))", low=1e-12, high=10, before=0.04,
    )  # fmt: skip
    parts: int = setting(1, "parts of a batch, computed one by one to save memory; gradients add up", **COUNT)

    arch_learning_rate: float = setting(3e-3, "learning rate of Adam for weights of the cell", low=1e-12, high=1e6)
    inter_learning_rate: float = setting(1e-3, "learning rate of Adam for weights of the gates", low=1e-12, high=1e6)
    arch_weight_decay: float = setting(1e-3, "weight decay of the architecture weights", low=0, high=1)
    arch_clip: float | None = setting(None, "largest norm of their gradient, of cell or gates", low=1e-12, high=1e12)
    arch_beta2: float = setting(
        0.999, "beta_2 of their Adam; the larger, the longer a large gradient keeps steps small", low=0, high=0.999999
    )
    fresh_moments: bool = setting(False, "learn joint: Adam forgets its moments when a phase begins")
    warmup_epochs: int = setting(0, "first epochs, in which the model weights learn alone", low=0, high=1_000_000)
    phase_steps: int | None = setting(
        None, "learn joint: most steps of a phase, before the other part's turn (about 115)", **COUNT
    )
    convergence: float = setting(
        0.0, "a phase, or a search, ends when MAD changes by less than this share of itself, and the architecture "
        "weights move on in no direction; 0: never", low=0, high=1,
    )  # fmt: skip
    convergence_steps: int = setting(100, "steps over which convergence is measured", **COUNT)
    sampling: str = setting(
        "none", "mixing weights in training: the softmax (none), with Gumbel noise (gumbel, as SNAS), or the strongest "
        "of those alone (straight-through, as GDAS)", choices=("none", "gumbel", "straight-through"),
    )  # fmt: skip
    temperature: float = setting(10.0, "sampling: temperature of the softmax in the first step", low=1e-3, high=1e3)
    temperature_end: float = setting(0.1, "sampling: temperature in the last step; it falls evenly", low=1e-3, high=1e3)
    selection: str = setting(
        "argmax", "derivation of the genotype at the end: argmax, the strongest edges; or perturbation, the edges that "
        "the supernet misses most (DARTS-PT)", choices=("argmax", "perturbation"),
    )  # fmt: skip
    selection_steps: int = setting(
        20, "selection perturbation: steps of the model weights between two decisions", low=0, high=1_000_000
    )

    samples: int = setting(
        100, "random-shared, random-independent: number of random architectures to compare", low=0, high=1_000_000
    )
    sample_segments: int = setting(
        10, "random-shared, enas and selection perturbation: validation segments of a first score",
        **COUNT,
    )  # fmt: skip
    candidates: list[str] = setting(
        [], "random-independent: genotypes to compare besides the random ones; evolution, local-search: first children"
    )
    rungs: int = setting(
        1, "random-independent: number of comparisons, after each of which the better half goes on", low=1, high=20
    )
    child_steps: list[int] = setting(
        [],
        "evolution, local-search: training steps of a child; evolution: in each stage, if there are hurdles",
        **COUNT,
    )
    population: int = setting(100, "evolution: members that are alive, P", low=1, high=1_000_000)
    tournament: int = setting(25, "evolution: members of which the best is the parent of a child, S", **COUNT)
    removal: str = setting(
        "oldest", "evolution: the member that makes room for a child, the oldest or the worst of a tournament",
        choices=("oldest", "worst"),
    )  # fmt: skip
    hurdle_every: int | None = setting(
        None, "evolution: children after which there is a further hurdle, the mean cost of the population", **COUNT
    )

    controller_learning_rate: float = setting(
        1e-3, "enas: learning rate of Adam for the controller (as published: 5e-5); 0: its untrained prior alone",
        low=0, high=1,
    )  # fmt: skip
    controller_steps: int = setting(25, "enas: steps of the controller after each epoch", **COUNT)
    controller_draws: int = setting(10, "enas: cells that a step of the controller draws", **COUNT)
    controller_entropy: float = setting(1e-5, "enas: weight of the entropy in the reward", low=0, high=1e6)
    controller_decay: float = setting(
        0.95, "enas: decay of the running mean that rewards are compared with (as published: 0.999)", low=0, high=1
    )
    controller_locality: float = setting(
        6.0, "enas: the logit of a tail k nodes back falls by k^2 / this, as in the authors' code; 0: it does not",
        low=0, high=1e9,
    )  # fmt: skip
    controller_size: int = setting(64, "enas: size of the controller's LSTM", **COUNT)

    def __post_init__(self) -> None:
        problems = find_problems(self)
        with contextlib.suppress(TypeError, ValueError, AttributeError):  # a wrong type contradicts nothing
            problems += self._contradictions()
        raise_problems(problems)

    def _contradictions(self) -> list[str]:
        intra = self.learn == "intra"
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
            (intra and changed(self, "inter_learning_rate"),
             "inter_learning_rate is of gates that are searched: learn must be inter or joint"),
            (self.learn == "inter" and (self.avoid_first or self.most_identity is not None),
             "avoid_first and most_identity are of a cell that is searched: learn must be intra or joint"),
            (self.recurrence == "elementwise" and (self.history or self.fixed is not None),
             "recurrence elementwise is of cells without gates: history must be 0, and fixed left out"),
            (self.orthogonality and self.after is None,
             "orthogonality is to the weights of an earlier search: after must name its folder"),
            (bool(self.retrain_epochs) and self.retrain_epochs >= self.epochs,
             f"retrain_epochs {self.retrain_epochs} must be less than epochs {self.epochs}: they are its last ones"),
            (self.after is not None and self.learn == "inter",
             "after continues the search of a cell: learn must be intra or joint"),
            (bool(self.retrain_epochs) and self.warmup_epochs >= self.epochs - self.retrain_epochs > 0,
             f"warmup_epochs {self.warmup_epochs} must be less than the {self.epochs - self.retrain_epochs} epochs "
             "before retrain_epochs"),
            (bool(self.retrain_epochs) and (self.learn == "inter" or self.convergence > 0),
             "retrain_epochs goes neither with learn inter nor with convergence"),
            (not self.gate_links and not self.history, "gate_links belongs to gates: history must be at least 1"),
            (self.convergence and self.phase_steps is not None and self.convergence_steps >= self.phase_steps,
             f"convergence_steps {self.convergence_steps} must be less than phase_steps {self.phase_steps}: a phase "
             "would always end first"),
        ]  # fmt: skip
        problems = [message for wrong, message in checks if wrong]
        if self.strategy in TRAINED_ALONE or self.objective == "several":
            kind = f"strategy {self.strategy}" if self.objective != "several" else "objective several"
            problems += [f"{name} needs weights that all cells of one task share, which {kind} has not"
                         for name in changed(self, "after", "sparsity", "retrain_epochs")]  # fmt: skip
        if self.learn != "joint":
            problems += [f"{name} belongs to learn joint, not {self.learn}"
                      for name in changed(self, "fresh_moments", "phase_steps")]  # fmt: skip
        for name, strategies in STRATEGY_SETTINGS.items():
            if self.strategy not in strategies and changed(self, name):
                problems.append(f"{name} belongs to strategy {' and '.join(strategies)}, not {self.strategy}")
        min_sequences = 1
        if self.strategy in STRATEGIES:  # else it is named as unknown already
            strategy = strategy_class(self.strategy)
            problems += strategy.contradictions(self)
            min_sequences = strategy.count_min_sequences(self)
        parts = max(self.parts, 1)  # 0 is named as out of range already
        if self.objective == "several":
            pass  # each task has batches of its own
        elif self.batch_size % parts:
            problems.append(f"batch_size {self.batch_size} cannot be divided into {self.parts} parts")
        elif self.batch_size // parts < min_sequences:
            problems.append(
                f"parts {self.parts} leaves less than {min_sequences} sequences in a part: batch normalisation needs "
                f"{min_sequences}"
            )
        if self.fixed is not None:
            try:
                self._fixed = parse_genotype(self.fixed)
            except FlairNasError as error:
                problems.append(f"fixed: {error}")
            else:
                if self._fixed.recurrence == "elementwise":
                    problems.append(f"fixed {self.fixed} has recurrence=elementwise, which goes with no gates")
                if intra and self._fixed.state_gate is None and self._fixed.input_gate is None:
                    problems.append(f"fixed {self.fixed} has no gates, and learn intra searches its cell anew")
        return problems

    def portable(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, without places, for a genotype's provenance."""
        return {name: value for name, value in changed(self).items() if name not in PLACES}

    def fixed_genotype(self) -> Genotype | None:
        """Return the genotype of `fixed` as it was when these settings were made; a file may have changed since."""
        return None if self.fixed is None else self._fixed


@dataclass
class SearchConfig(SearchSettings, TextSettings):
    """Settings of `search_genotype` on a text; each is also a flag of ``flair-nas search`` and a key of ``--config``.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.
    """

    objective: str = setting(
        "text", "task of the model", choices=tuple(name for name in OBJECTIVES if name not in SETTINGS)
    )
    adaptive_cutoffs: list[int] = setting(
        [], "adaptive softmax, for large vocabularies: types up to each cluster's end", check=check_rising,
        **COUNT,
    )  # fmt: skip
    bptt: int = setting(35, "words of a segment of truncated back-propagation", **COUNT)
    min_steps: int = setting(
        0, "fewest optimizer steps of an epoch: on a short text segments have fewer words than bptt, down to 5",
        low=0, high=1_000_000,
    )  # fmt: skip
    vary_length: bool = setting(True, "draw the segments' lengths, as AWD-LSTM does, and scale the learning rate")
    dropout: float = setting(0.75, "variational dropout of the layer's output", **PROBABILITY)
    embedding_dropout: float = setting(0.2, "variational dropout of the embedding's output", **PROBABILITY)
    slowness: float = setting(
        1e-3, "beta, weight of the mean square of h_t - h_{t-1} in the training loss", low=0, high=1e6
    )
    embedding_init_range: float = setting(
        0.1, "embedding and softmax start uniform in +-this (the papers' code: 0.04)", low=1e-12, high=10
    )
    frequency_bias: bool = setting(
        True,
        "the bias of a plain softmax starts at the logarithms of word frequencies (the papers' code: 0)",
        before=False,
    )
