"""A copy of trials in a storage of Optuna, for its dashboard. The ledger is what counts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from flair_nas.errors import FlairNasError, shown
from flair_nas.tune.parts import Space, is_within
from flair_nas.tune.sampler import Known, to_distributions, to_trial

log = logging.getLogger("flair_nas")


def open_storage(url: str, name: str, higher_is_better: bool) -> Any:
    """Return the study of a name in a storage of Optuna; make it if it is not there.

    Raises:
        FlairNasError: the storage cannot be used.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=url,
            study_name=name,
            direction="maximize" if higher_is_better else "minimize",
            load_if_exists=True,
        )
    except Exception as error:  # a database can raise anything
        raise FlairNasError(f"optuna_storage {url} cannot be used ({shown(error)})") from None


def copy_trials(study: Any, known: Sequence[Known], space: Space, is_over: bool) -> None:
    """Add trials that have ended or failed, and once the search is over those that did not go on; warn if that fails.

    Points outside the space are left out, as the baseline may be.
    """
    try:
        there = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False)}
        distributions = to_distributions(space)
        for number, one in enumerate(known):
            has_ended = one.is_done or one.has_failed or is_over and one.figures
            if has_ended and number not in there and is_within(one.point, space):
                study.add_trial(to_trial(one, distributions, number))
    except Exception as error:
        log.warning("the copy of the trials in Optuna's storage is not whole (%s)", shown(error))
