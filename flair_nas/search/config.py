"""The settings of a search: one place for names, defaults, help texts and checks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flair_nas.errors import FlairNasError
from flair_nas.genotype import CARRIES, DEFAULT_CARRY, GATE_FORMS, Genotype
from flair_nas.language_model.config import rising
from flair_nas.language_model.text.config import TextSettings
from flair_nas.search.registry import OBJECTIVES, SETTINGS, STRATEGIES, strategy_class
from flair_nas.settings.fields import COUNT, PROBABILITY, changed, setting
from flair_nas.settings.validation import problems_of, raise_problems

if TYPE_CHECKING:  # both load torch, which asking for help must not
    pass


def genotype_of(text: str) -> Genotype:
    """The genotype that a setting names: what `load_genotype` takes, and options of the genotype after commas.

    Raises:
        FlairNasError: there is none, or an option that is not one of a genotype's.
    """
    from flair_nas.library.layer_spec import parse_rnn

    genotype, numbers = parse_rnn(text, name="genotype")
    if numbers:
        raise FlairNasError(f"{text}: {', '.join(numbers)} has no meaning here; the search has settings of its own")
    return genotype


def _known_relaxation(name: str) -> str:
    from flair_nas.supernet.relaxation import RELAXATIONS  # its functions need torch

    return "" if name in RELAXATIONS else f"must be one of {', '.join(RELAXATIONS)}"


@dataclass
class SearchSettings:
    """What searches have in common, whatever the model learns; the defaults are those of I-DARTS on Penn Treebank,
    where the papers give them, but for first weights and learning rate, which are for any size.

    Attributes:
        SECTIONS: of the help, by the first setting of each.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other, all of them named at once.
    """

    SECTIONS: ClassVar[dict[str, str]] = {
        "nodes": "cell and gates",
        "learning_rate": "model weights",
        "arch_learning_rate": "architecture weights (strategy gradient)",
        "samples": "random strategies",
    }

    objective: str = setting(
        "text", f"what the model learns, and is searched on: {', '.join(OBJECTIVES)} (text)", choices=tuple(OBJECTIVES)
    )
    strategy: str = setting("gradient", f"how to search: {', '.join(STRATEGIES)}", choices=tuple(STRATEGIES))
    relaxation: str = setting(
        "i-darts", "how the softmax is grouped: darts (per pair) or i-darts (per node)", check=_known_relaxation
    )
    order: int = setting(1, "order of the architecture gradient, 1 or 2", low=1, high=2)
    learn: str = setting("intra", "what to search: the cell (intra), its gates (inter), or both in turn (joint)",
                         choices=("intra", "inter", "joint"))  # fmt: skip
    hidden_size: int = setting(300, "hidden size H, and on text size D of the embedding", **COUNT)
    batch_size: int = setting(256, "sequences in a batch, over all processes", low=2, high=1_000_000)
    epochs: int = setting(40, "passes over the training data", low=0, high=1_000_000)
    seed: int = setting(1, "of everything that is random", low=0, high=2**32 - 1)
    precision: str = setting("float32", "float32, or bfloat16 products with float32 weights and states",
                             choices=("float32", "bfloat16"))  # fmt: skip
    device: str | None = setting(None, "cpu, cuda or cuda:N (a GPU when there is one)")

    nodes: int = setting(8, "nodes of the cell that is searched (learn inter: those of --fixed)", low=1, high=100)
    edges_per_node: int = setting(1, "edges into a node of the genotype, n", low=1, high=4)
    avoid_first: bool = setting(False, "nodes after the first do not read s_0, as in the I-DARTS authors' code")
    most_identity: int | None = setting(
        None, "at most so many nodes of the genotype have an identity edge; the least certain take their next best",
        low=0, high=100,
    )  # fmt: skip
    history: int = setting(0, "history length m of the inter-cell gates; 0 for none", low=0, high=100)
    gate: str = setting("residual", f"form of the gates: {', '.join(GATE_FORMS)}", choices=GATE_FORMS)
    gate_links: bool = setting(True, "the nodes of a gate read one another; otherwise each its own entry alone")
    carry: str = setting(
        DEFAULT_CARRY, "with gates, what s_0 keeps of the past: h (ungated), or h times the state gate (gated)",
        choices=CARRIES, before="gated",
    )  # fmt: skip
    fixed: str | None = setting(
        None, "genotype (options after commas) whose cell (learn inter) or gates (learn intra) stay as they are"
    )

    learning_rate: float = setting(10.0, "of SGD for the model weights", low=1e-12, high=1e6)
    schedule: str = setting(
        "constant", "of that learning rate: constant, or cosine down to 0", choices=("constant", "cosine")
    )
    weight_decay: float = setting(5e-7, "of the model weights", low=0, high=1)
    clip: float = setting(0.25, "the norm of the model's gradient is clipped to this", low=1e-12, high=1e12)
    recurrent_dropout: float = setting(0.25, "variational dropout of h and the nodes' states", **PROBABILITY)
    input_dropout: float = setting(0.75, "variational dropout of the layer's input x", **PROBABILITY)
    init_range: float | None = setting(
        None, "weights of the layer start uniform in +-this (1.17 / sqrt(H), as 0.04 in the papers' code at 850; where "
        "one cell is trained at a time 1.5 / sqrt(H))", low=1e-12, high=10, before=0.04,
    )  # fmt: skip
    parts: int = setting(1, "pieces that a batch is computed in, to save memory (gradients are accumulated)", **COUNT)

    arch_learning_rate: float = setting(3e-3, "of Adam for the architecture weights of the cell", low=1e-12, high=1e6)
    inter_learning_rate: float = setting(1e-3, "of Adam for those of the gates", low=1e-12, high=1e6)
    arch_weight_decay: float = setting(1e-3, "of the architecture weights", low=0, high=1)
    arch_clip: float | None = setting(
        None, "the norm of their gradient, of cell or gates, is clipped to this", low=1e-12, high=1e12
    )
    arch_beta2: float = setting(
        0.999, "beta_2 of their Adam: how long a large gradient makes steps small", low=0, high=0.999999
    )
    fresh_moments: bool = setting(False, "learn joint: Adam forgets its moments when a phase begins")
    warmup_epochs: int = setting(
        0, "epochs at the beginning in which the model weights learn alone", low=0, high=1_000_000
    )
    phase_steps: int | None = setting(
        None,
        "learn joint: steps of a phase at most; then it is the other part's turn (about 115)",
        **COUNT,
    )
    convergence: float = setting(
        0.0, "a phase, or a search, ends when MAD has changed by less than this share of itself, and the architecture "
        "weights do not move on in one direction; 0: never", low=0, high=1,
    )  # fmt: skip
    convergence_steps: int = setting(100, "over that many steps", **COUNT)
    sampling: str = setting(
        "none", "shares in training: the softmax (none), with Gumbel noise (gumbel, as SNAS), or of that the strongest "
        "alone (straight-through, as GDAS)", choices=("none", "gumbel", "straight-through"),
    )  # fmt: skip
    temperature: float = setting(
        10.0, "sampling: what architecture weights and noise are divided by at first", low=1e-3, high=1e3
    )
    temperature_end: float = setting(0.1, "and in the last step; from step to step it falls evenly", low=1e-3, high=1e3)
    selection: str = setting(
        "argmax", "how the genotype is read off at the end: argmax, the strongest edges; or perturbation, those that "
        "the supernet misses the most (DARTS-PT)", choices=("argmax", "perturbation"),
    )  # fmt: skip
    selection_steps: int = setting(
        20, "selection perturbation: steps of the model weights between two decisions", low=0, high=1_000_000
    )

    samples: int = setting(100, "random strategies: random architectures to compare", low=0, high=1_000_000)
    sample_segments: int = setting(
        10, "random-shared and selection perturbation: validation segments that something is scored on at first",
        **COUNT,
    )  # fmt: skip
    candidates: list[str] = setting([], "random-independent: genotypes to compare besides the random ones")
    rungs: int = setting(
        1, "random-independent: candidates are compared so many times, and only the better half goes on", low=1, high=20
    )

    def __post_init__(self) -> None:
        problems = problems_of(self)
        with contextlib.suppress(TypeError):  # of a setting of the wrong type it cannot be told what contradicts it
            problems += self._contradictions()
        raise_problems(problems)

    def _contradictions(self) -> list[str]:
        found = []
        if self.learn in ("inter", "joint") and not self.history:
            found.append(f"learn {self.learn} needs gates to search: history must be at least 1")
        if self.learn == "inter" and self.fixed is None:
            found.append("learn inter needs the cell that stays as it is: fixed must name a genotype")
        if self.learn == "intra" and self.history:
            found.append("learn intra does not learn gates: history must be 0 (fixed can name a genotype with gates)")
        if self.learn == "joint" and self.fixed is not None:
            found.append("learn joint searches cell and gates: fixed must be left out")
        if self.learn == "intra" and changed(self, "gate"):
            found.append(
                f"gate {self.gate} is of gates that are searched: learn must be inter or joint (those of fixed have "
                "their own)"
            )
        if self.learn == "intra" and changed(self, "inter_learning_rate"):
            found.append("inter_learning_rate is of gates that are searched: learn must be inter or joint")
        if self.learn == "inter" and (self.avoid_first or self.most_identity is not None):
            found.append("avoid_first and most_identity are of a cell that is searched: learn must be intra or joint")
        if not self.gate_links and not self.history:
            found.append("gate_links belongs to gates: history must be at least 1")
        if self.fresh_moments and self.learn != "joint":
            found.append(f"fresh_moments belongs to learn joint, not {self.learn}")
        if self.rungs > 1 and self.strategy != "random-independent":
            found.append(f"rungs belongs to strategy random-independent, not {self.strategy}")
        if self.candidates and self.strategy != "random-independent":
            found.append(f"candidates belongs to strategy random-independent, not {self.strategy}")
        if self.phase_steps is not None and self.learn != "joint":
            found.append(f"phase_steps belongs to learn joint, not {self.learn}")
        if self.convergence and self.phase_steps is not None and self.convergence_steps >= self.phase_steps:
            found.append(
                f"convergence_steps {self.convergence_steps} must be less than phase_steps {self.phase_steps}: a phase "
                "would always end first"
            )
        least = 1
        if self.strategy in STRATEGIES:  # else it is named as unknown already
            strategy = strategy_class(self.strategy)
            found += strategy.contradictions(self)
            least = strategy.least_sequences(self)
        parts = max(self.parts, 1)  # 0 is named as out of range already
        if self.batch_size % parts:
            found.append(f"batch_size {self.batch_size} cannot be divided into {self.parts} parts")
        elif self.batch_size // parts < least:
            found.append(
                f"parts {self.parts} leaves less than {least} sequences in a part: batch normalisation needs {least}"
            )
        if self.fixed is not None:
            try:
                self._fixed = genotype_of(self.fixed)
            except FlairNasError as error:
                found.append(f"fixed: {error}")
            else:
                if self.learn == "intra" and self._fixed.state_gate is None and self._fixed.input_gate is None:
                    found.append(f"fixed {self.fixed} has no gates, and learn intra searches its cell anew")
        return found

    def fixed_genotype(self) -> Genotype | None:
        """The genotype that `fixed` stood for when these settings were made; a file may have changed since."""
        return None if self.fixed is None else self._fixed


@dataclass
class SearchConfig(SearchSettings, TextSettings):
    """Settings of `search_genotype` on a text; each is also a flag of ``flair-nas search`` and a key of ``--config``.

    The defaults are those of I-DARTS on Penn Treebank, where the papers give them, but for first weights and learning
    rate, which are for any size.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other, all of them named at once.
    """

    objective: str = setting(
        "text", "what the model learns", choices=tuple(name for name in OBJECTIVES if name not in SETTINGS)
    )
    adaptive_cutoffs: list[int] = setting(
        [], "adaptive softmax, for large vocabularies: how many types each cluster ends after", check=rising, **COUNT
    )
    bptt: int = setting(35, "words of a segment, for truncated back-propagation", **COUNT)
    min_steps: int = setting(
        0, "optimizer steps of an epoch at least: on a short text segments have fewer words than bptt, down to 5",
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
