"""Search by a predictor: ridge regression on the features of cells, and Thompson sampling, from what is known of cells.

A draw of the predictor's weights predicts the costs of many cells, and the one with the lowest is trained next
(Thompson, 1933; Snoek et al., 2015, for such features in the search of networks).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flair_nas.search.protocols import JSON, Candidate, Objective
from flair_nas.search.settings import CommonSettings
from flair_nas.search.space import make_space
from flair_nas.search.strategies.children import ChildSearch, ChildSettings
from flair_nas.settings.fields import setting
from flair_nas.storage.files import hash_data

if TYPE_CHECKING:
    from flair_nas.library.cost_model import Array

log = logging.getLogger("flair_nas")

STARTS = 4
"""Random cells that come first if nothing is known."""
POOL = 1500
"""Random cells that are predicted before each child."""
_BEST = 5  # children whose neighbours are predicted, too


@dataclass
class PredictorSettings(ChildSettings):
    """Settings of search by a predictor.

    Example:
        >>> from flair_nas import PredictorSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=PredictorSettings(child_steps=[300], prior="none")).strategy.prior
        'none'
    """

    prior: str | None = setting(
        None, "what the predictor knows at the beginning: what the tables of docs/arena.md tell, or none (on text the "
        "tables; else none, as they tell nothing on tags)", choices=("bundled", "none"),
    )  # fmt: skip

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for several stages, and for what `ChildSettings` refuses."""
        several = "strategy predictor has no hurdles: child_steps must be one number"
        bundled = "prior bundled is of cells: leave it out with sublayers"
        unknown = self.prior == "bundled" and config.transformer.sublayers is not None
        return super().problems(config) + [several] * (len(self.child_steps) > 1) + [bundled] * unknown


def _knows(config: CommonSettings) -> bool:
    """Return True if the bundled tables tell of such candidates: of cells on text."""
    return config.objective == "text" and config.transformer.sublayers is None


class PredictorSearch(ChildSearch):
    """Search that trains the cell of the lowest cost that a draw of the predictor predicts.

    Raises:
        FlairNasError: the prior cannot be read.
    """

    settings = PredictorSettings
    own: PredictorSettings
    title = "predictor"

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        from flair_nas.library.cost_model import CostModel, load_prior  # here, as it loads NumPy

        self.is_known = settings.prior == "bundled" or settings.prior is None and _knows(config)
        self.prior = load_prior() if self.is_known else CostModel.empty(len(make_space(config).features))
        self.prior_sha256 = hash_data([self.prior.mean.tolist(), self.prior.precision.tolist()])
        self.enough = 8 if self.is_known else 16
        super().__init__(objective, config, settings)

    def known(self) -> tuple[list[Candidate], Array, list[float]]:
        """Return the children that were scored or failed, their features, [children, features], and their costs."""
        cells = [self.children[number] for number in sorted(self.scores)]
        return cells, self.space.encode(cells), [self.scores[number] for number in sorted(self.scores)]

    def propose(self) -> Candidate:
        """Return the cell of the lowest cost by a draw of the predictor's weights, if there is one not yet trained."""
        import numpy as np

        number, (cells, features, costs) = len(self.children), self.known()
        if not self.is_known and number < STARTS:
            return self.draw_random()
        best = sorted(range(len(cells)), key=lambda place: costs[place])[:_BEST]
        near = [cell for place in best for cell in self.space.neighbours(cells[place])]
        pool, inputs = self._pool
        model = self.prior.learn(features, costs) if cells else self.prior
        predicted = model.draw(np.concatenate([inputs, self.space.encode(near)]), (self.config.seed, number))
        trained = {*self.children}
        order = ([*pool, *near][place] for place in predicted.argsort(kind="stable"))
        return next((cell for cell in order if cell not in trained), pool[0])

    @functools.cached_property
    def _pool(self) -> tuple[list[Candidate], Array]:
        """The random cells, and their features, [POOL, features]."""
        cells = [self.space.draw(number) for number in range(POOL)]
        return cells, self.space.encode(cells)

    def take(self, number: int, cost: float) -> None:
        """Do nothing: the next draw learns all scores."""

    def state_dict(self) -> JSON:
        """Return what is kept, and the checksum of the prior."""
        return super().state_dict() | {"prior_sha256": self.prior_sha256}

    def load_state_dict(self, state: JSON) -> None:
        """Go on, and warn if the search began with another prior."""
        super().load_state_dict(state)
        if state.get("prior_sha256", self.prior_sha256) != self.prior_sha256:
            log.warning("this version knows other things of cells before a search, so the children will be others")

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best child, and on what the predictor has learnt."""
        import numpy as np
        from scipy.stats import spearmanr

        lead, (_, features, costs) = super().verdict(history), self.known()
        if not self.finished or len(costs) < _BEST:
            return lead
        prior = self.prior
        varied = np.ptp(features, axis=0) > 0
        model = prior.learn(features, costs)
        sureness = model.mean / np.sqrt(np.diag(np.linalg.inv(model.precision)))  # in standard deviations
        order = [place for place in sureness.argsort() if varied[place]]
        good = ", ".join(f"'{self.space.features[place]}'" for place in order[:3] if sureness[place] < 0)
        bad = ", ".join(f"'{self.space.features[place]}'" for place in order[:-4:-1] if sureness[place] > 0)
        learnt = f"good signs are {good or 'none'}, bad ones {bad or 'none'}"
        if self.is_known:
            agreement = spearmanr(prior.predict(features), costs).statistic
            learnt += f"; what was known before ranks these children with a correlation of {agreement:.2f}"
        return "; ".join(filter(None, (lead, learnt)))
