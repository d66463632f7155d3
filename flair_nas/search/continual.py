"""Continual architecture search (CAS, Pasunuru and Bansal, 2019): searches that go on from the weights of others."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.named import load_genotype
from flair_nas.runs.checkpoints import Checkpoints
from flair_nas.search.config import SearchSettings
from flair_nas.search.protocols import Objective
from flair_nas.search.settings import ContinualSettings
from flair_nas.search.several_config import settings_class
from flair_nas.settings.fields import flatten
from flair_nas.settings.resolve import read_mapping, read_run_settings
from flair_nas.storage.paths import user_path
from flair_nas.supernet import OneTask
from flair_nas.supernet.cell import cell_of
from flair_nas.supernet.shared import directions, layer_weights

log = logging.getLogger("flair_nas")

LINEAR_MAPS = ("embedding2nn", "word_reprojection_map")
"""Flair's names for the linear map on top of the embeddings."""


class Stage(NamedTuple):
    """A finished search whose weights another one goes on from."""

    folder: Path
    config: SearchSettings
    genotype: Genotype
    weights: Mapping[str, Tensor]  # of the whole model, by name
    data: str  # fingerprint of its data


def load_stage(folder: str | Path) -> Stage:
    """Load a finished search with shared weights. Any other folder is a FlairNasError."""
    folder = user_path(folder)
    if not (folder / "config.yaml").exists():
        raise FlairNasError(f"{folder}: there is no search in this folder (no config.yaml)")
    objective = read_mapping(folder / "config.yaml").get("objective", "text")
    config = read_run_settings(folder / "config.yaml", settings_class(objective))
    state = Checkpoints(folder).load() or {"epoch": 0, "finished": False}
    if not state["finished"]:
        raise FlairNasError(
            f"{folder}: this search has finished {state['epoch']} of {config.epochs} epochs; go on with it first: "
            f"flair-nas search --resume {folder}"
        )
    if config.unshared:
        raise FlairNasError(
            f"{folder}: a search with {config.unshared} leaves no weights that all cells of one task share"
        )
    return Stage(folder, config, load_genotype(str(folder)), state["model"], state["text"].partition(" after ")[0])


def check_space(stage: Stage, config: SearchSettings) -> None:
    """Raise an error if a finished search and these settings have different spaces."""
    same = ["objective", "nodes", "hidden_size", "history", "recurrence", "learn", "directions", "fixed", "gate"]
    same += ["carry", "gate_links"] if config.history else []
    there, here = flatten(stage.config), flatten(config)
    pairs = {name: (there.get(name), here.get(name)) for name in same}
    if other := [f"{name} {before} there and {now} here" for name, (before, now) in pairs.items() if before != now]:
        raise FlairNasError(f"{stage.folder} is a search of another space: {', '.join(other)}")


def matrices(supernet: OneTask) -> list[Tensor]:
    """Return the matrices of a layer as the paper has them, each [out, in]; the vector of a recurrence is [H].

    Gate and candidate are matrices of their own, and both read [x | h]. Our supernet has one matrix for a node,
    whichever tail it reads. The paper's has one for each pair of nodes.
    """
    parts: list[Tensor] = []
    for direction in directions(supernet):
        cell = cell_of(direction)
        hidden: Tensor = cell.weight_hidden
        if hidden.dim() == 1:
            parts += [*cell.weight_input.t().chunk(2), hidden]  # [H, D] each, and [H]
        else:
            parts += torch.cat([cell.weight_input, hidden]).t().chunk(2)  # [H, D + H] each
        for node in cell.weight_nodes:
            parts += node.t().chunk(2)  # [H, H] each
        for gate in (cell.state_gate, cell.input_gate):
            parts += [] if gate is None else [m.t() for w in (gate.weight_entry, gate.weight_nodes) for m in w]
    return parts


def sparsity(parts: Sequence[Tensor]) -> Tensor:
    """Compute Σ_i ‖W[i, :]‖_2 over the rows of all matrices (CAS, block sparsity); of vectors Σ |w_i|."""
    norms = [part.abs() if part.dim() == 1 else torch.linalg.vector_norm(part, dim=1) for part in parts]
    return torch.cat(norms).sum()


def grams(before: Sequence[Tensor]) -> list[Tensor]:
    """Return θ θᵀ of each matrix θ; vectors stay."""
    return [theta if theta.dim() == 1 else theta @ theta.t() for theta in before]


def overlaps(changes: Sequence[Tensor], products: Sequence[Tensor]) -> Tensor:
    """Compute ‖ψᵀ θ‖² of each change ψ, from the `grams` of the weights θ before it (CAS, orthogonality).

    It is Σ (ψ ψᵀ) ⊙ (θ θᵀ). Of vectors it is ‖ψ θ‖².
    """
    terms = [change * product for change, product in zip(grams(changes), products)]
    return torch.stack([term.square().sum() if term.dim() == 1 else term.sum() for term in terms])


def continue_from(objective: Objective, config: ContinualSettings, stage: Stage | None) -> None:
    """Take the weights of the search before, if there is one; add the penalties of the settings to the training loss.

    The layer's weights and the linear map before it are taken. The rest of the model, and the architecture weights,
    begin anew.
    """
    if stage is not None:
        digest = hashlib.sha256()
        for name, weight in take_weights(objective, stage).items():
            digest.update(name.encode() + weight.detach().cpu().numpy().tobytes())
        if stage.data == objective.fingerprint:
            log.warning("%s: that search was on the same data, %s", stage.folder, objective.name)
        objective.fingerprint = f"{objective.fingerprint} after {digest.hexdigest()}"
        objective.name += f", from the weights of a search on {stage.genotype.origin.get('corpus', stage.folder.name)}"
    if config.sparsity or config.orthogonality:
        objective.penalty = _make_penalty(objective, config, continues=stage is not None)


def _make_penalty(objective: Objective, config: ContinualSettings, continues: bool) -> Callable[[Tensor], Tensor]:
    """Make a function that adds the penalties on the weights of layer and linear map, or on their change."""
    maps = [weight for name, weight in carried(objective).items() if _is_of_linear_map(name)]

    def protected() -> list[Tensor]:
        return [*matrices(objective.supernet), *maps]  # type: ignore[arg-type]

    before = [part.detach().clone() if continues else torch.zeros_like(part) for part in protected()]
    products = grams(before) if config.orthogonality else []

    def penalise(loss: Tensor) -> Tensor:
        changes = [part - old for part, old in zip(protected(), before)]
        loss = loss + config.sparsity * sparsity(changes)
        return loss + config.orthogonality * overlaps(changes, products).sum() if products else loss

    return penalise


def carried(objective: Objective) -> dict[str, nn.Parameter]:
    """Return the weights that the next search takes, by name."""
    layer = {id(weight) for weight in layer_weights(objective.supernet).values()}  # type: ignore[arg-type]
    named = objective.module.named_parameters()
    return {name: weight for name, weight in named if id(weight) in layer or _is_of_linear_map(name)}


def _is_of_linear_map(name: str) -> bool:
    return any(part.removeprefix("words_") in LINEAR_MAPS for part in name.split("."))


def take_weights(objective: Objective, stage: Stage) -> dict[str, nn.Parameter]:
    """Give a model the weights of a stage that the next search takes, and return them by name."""
    weights = carried(objective)
    for name, weight in weights.items():
        there = stage.weights.get(name)
        if there is None or there.shape != weight.shape:
            raise FlairNasError(
                f"{stage.folder}: {name} is {list(weight.shape)} here and "
                f"{'no such weight' if there is None else list(there.shape)} there; give both searches embeddings of "
                "one width"
            )
        weight.data.copy_(there)
    return weights
