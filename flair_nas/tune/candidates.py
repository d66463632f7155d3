"""Candidates of a tuning: points of the space, with the settings of their runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flair_nas.experiments.tasks import TAGGING
from flair_nas.library.layer_spec import identity
from flair_nas.settings.resolve import load_preset
from flair_nas.storage.files import hash_data
from flair_nas.tune.config import TuneSettings
from flair_nas.tune.parts import EMBEDDED, Point, Space, allows, current_point, is_whole, to_changes

BASELINE = 0
"""Number of the baseline among the candidates."""
PRESET = "small-ner"
"""Preset whose settings are tried first on tags."""


@dataclass(frozen=True)
class Candidate:
    """A point of the space."""

    name: str  # fit for a folder; it depends on the settings alone
    point: Point = field(compare=False)
    settings: dict[str, Any] = field(compare=False)  # of a run, without its seed

    def run(self, seed: int) -> str:
        """Return the name of the run with a seed, which is its key in the ledger and its folder."""
        return f"{self.name}-seed{seed}"

    @property
    def shape(self) -> str:
        """Key of what decides how long a sentence takes."""
        of_tagger = ("embeddings", "crf", "reproject")
        of_text = ("embedding_size", "adaptive_cutoffs", "tied")
        names = ("rnn", "hidden_size", "layers", "precision", "device", *of_tagger, *of_text)
        return f"ms-{hash_data([self.settings.get(name) for name in names])[:12]}"


def make_candidate(config: TuneSettings, point: Point) -> Candidate:
    """Return the candidate of a point."""
    settings = config.run_settings(to_changes(point))
    free = {*config.may_change, "epochs", "seeds", "storage"}
    own = {name: value for name, value in settings.items() if name not in free} | {"rnn": identity(settings["rnn"])}
    slug = re.sub(r"[^\w.-]+", "_", settings["rnn"]).lower()[:24].strip("_.-")
    return Candidate(f"{slug}-{hash_data(own)[:8]}", point, settings)


def first_points(config: TuneSettings, space: Space, learnt: Sequence[dict[str, Any]]) -> list[Point]:
    """Return the points that come before those that are drawn: the baseline, and known good ones.

    Args:
        config: the settings.
        space: values of each dimension.
        learnt: best settings of earlier runs.
    """
    baseline = current_point(config, space)
    points = [baseline]
    presets = [load_preset("tagging", PRESET, TAGGING.settings)] if config.task is TAGGING else []
    for known in [*({name: own[name] for name in own if name != "embeddings"} for own in presets), *learnt]:
        values = known | {f"{EMBEDDED}{spec}": True for spec in known.get("embeddings", ())}
        if "embeddings" in known:
            values |= {name: name in values for name in space if name.startswith(EMBEDDED)}
        point = baseline | {
            name: values[name] for name in values if name in space and allows(space[name], values[name])
        }
        points.append(point if is_whole(point) else baseline)
    points += [baseline | {"rnn": layer} for layer in config.candidates if "rnn" in space]
    return list({hash_data(point): point for point in points}.values())


def describe(candidate: Candidate) -> str:
    """Return what a candidate changes, in one line; its layer, if the name does not tell."""
    parts = []
    for name, value in to_changes(candidate.point).items():
        if name != "rnn" or not candidate.name.startswith(value.lower()):
            words = value if isinstance(value, list) else [f"{value:.3g}" if isinstance(value, float) else str(value)]
            parts.append(f"{name.replace('_', ' ')} {' '.join(words)}")
    return "; ".join(parts)
