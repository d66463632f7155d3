"""Draws of settings: at random, or by the tree-structured Parzen estimator of Optuna.

Both are seeded anew for each draw, so a draw depends on what is known and its number alone.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from flair_nas.storage.files import hash_data
from flair_nas.tune.parts import Point, Range, Space, count_points, is_whole, is_within

ATTEMPTS = 100
"""Number of draws after which no new point is expected to be found."""
_STARTS = 5  # random points before the estimator begins; ten cost a point of rank with 16 trainings


class Known(NamedTuple):
    """A point, and all that is known of it."""

    point: Point
    figures: dict[int, float]  # metric by rung; empty while it trains
    is_done: bool  # it was trained to the end
    has_failed: bool = False


def draw(
    space: Space,
    known: Sequence[Known],
    seed: int,
    sampler: str,
    higher_is_better: bool,
    is_new: Callable[[Point], bool],
) -> Point | None:
    """Return a new point, or None if none is found.

    Args:
        space: values of each dimension.
        known: points so far, in order.
        seed: seed of all draws; the number of points is the number of the draw.
        sampler: ``random`` or ``tpe``.
        higher_is_better: a higher metric is better.
        is_new: function that tells if a point is new.
    """
    known_here = [one for one in known if is_within(one.point, space)]  # others have other parts or values
    if len(known_here) >= count_points(space):
        return None
    for attempt in range(ATTEMPTS):
        number = int(hash_data([seed, len(known), attempt])[:8], 16)
        if sampler == "tpe" and attempt < ATTEMPTS // 10:  # then it repeats itself
            point = _estimate(space, known_here, number, higher_is_better)
        else:
            point = _draw_at_random(space, random.Random(number))
        if is_whole(point) and is_new(point):
            return point
    return None


def _draw_at_random(space: Space, source: random.Random) -> Point:
    point: Point = {}
    for name, values in space.items():
        if not isinstance(values, Range):
            point[name] = source.choice(values)
        elif values.log:
            point[name] = math.exp(source.uniform(math.log(values.low), math.log(values.high)))
        else:
            point[name] = source.uniform(values.low, values.high)
    return point


def _estimate(space: Space, known: Sequence[Known], seed: int, higher_is_better: bool) -> Point:
    """Return a point by Optuna, which is told all that is known."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=_STARTS
        )
    study = optuna.create_study(sampler=sampler, direction="maximize" if higher_is_better else "minimize")
    distributions = to_distributions(space)
    for number, one in enumerate(known):
        trial = to_trial(one, distributions, number)
        if trial.state is optuna.trial.TrialState.FAIL:  # which the estimator would pass over
            trial.state = optuna.trial.TrialState.PRUNED
        study.add_trial(trial)
    return dict(study.ask(distributions).params)


def has_optuna() -> bool:
    """Return True if Optuna can be imported."""
    return find_spec("optuna") is not None


def to_distributions(space: Space) -> dict[str, Any]:
    """Return the distributions of Optuna for a space."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        name: FloatDistribution(values.low, values.high, log=values.log)
        if isinstance(values, Range)
        else CategoricalDistribution(list(values))
        for name, values in space.items()
    }


def to_trial(one: Known, distributions: dict[str, Any], number: int) -> Any:
    """Return what is known of a point within distributions, and its number, as a trial of Optuna."""
    from optuna.trial import TrialState, create_trial

    state, value = TrialState.PRUNED, None
    if one.has_failed:
        state = TrialState.FAIL
    elif one.is_done:
        state, value = TrialState.COMPLETE, [*one.figures.values()][-1]
    elif not one.figures:
        state = TrialState.RUNNING
    return create_trial(
        state=state,
        value=value,
        params=one.point,
        distributions=distributions,
        intermediate_values={} if state is TrialState.FAIL else one.figures,
        user_attrs={"number": number},
    )
