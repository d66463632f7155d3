"""A copy of all trials in a storage of Optuna, for its dashboard. The ledger is what counts."""

from __future__ import annotations

import logging
from typing import Any

from flair_nas.errors import FlairNasError, shown
from flair_nas.tune.parts import Space, is_within
from flair_nas.tune.sampler import Known, to_trial

log = logging.getLogger("flair_nas")


class Mirror:
    """A study in a storage of Optuna, which is made if it is not there.

    Args:
        url: address of the storage, as ``sqlite:///trials.db``.
        name: name of the study.
        space: values of each dimension.
        higher_is_better: a higher metric is better.

    Raises:
        FlairNasError: the storage cannot be used.
    """

    def __init__(self, url: str, name: str, space: Space, higher_is_better: bool) -> None:
        import optuna

        self._space, self._told = space, dict[int, Known]()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(
                storage=url,
                study_name=name,
                direction="maximize" if higher_is_better else "minimize",
                load_if_exists=True,
            )
            self._storage: Any = optuna.storages.get_storage(url)
            self._study = self._storage.get_study_id_from_name(study.study_name)
            trials = self._storage.get_all_trials(self._study)
        except Exception as error:  # a database can raise anything
            raise FlairNasError(f"optuna_storage {url} cannot be used ({shown(error)})") from None
        self._numbers = {trial.user_attrs.get("number"): trial._trial_id for trial in trials}

    def tell(self, known: list[Known], is_over: bool = False) -> None:
        """Copy what is known of all candidates; if it is over, end those that did not go on. Warn if that fails."""
        try:
            for number, one in enumerate(known):
                if is_over or self._told.get(number) != one:
                    self._tell(number, one, is_over)
                    self._told[number] = one
        except Exception as error:
            log.warning("the copy of the trials in Optuna's storage is not whole (%s)", shown(error))

    def _tell(self, number: int, one: Known, is_over: bool) -> None:
        from optuna.trial import TrialState

        if not is_within(one.point, self._space):  # as the baseline may be, and points of other parts
            return
        trial = to_trial(one, self._space)
        state, figures = trial.state, trial.intermediate_values
        if number not in self._numbers:
            trial.state, trial.values, trial.datetime_complete = TrialState.RUNNING, None, None
            trial.set_user_attr("number", number)
            self._numbers[number] = self._storage.create_new_trial(self._study, template_trial=trial)
        key = self._numbers[number]
        if self._storage.get_trial(key).state.is_finished():
            return  # it was over before the budget was raised
        for rung, figure in figures.items():
            self._storage.set_trial_intermediate_value(key, rung, figure)
        if state is TrialState.COMPLETE:
            self._storage.set_trial_state_values(key, state, [[*one.figures.values()][-1]])
        elif state is TrialState.FAIL or is_over:
            self._storage.set_trial_state_values(key, TrialState.FAIL if one.has_failed else TrialState.PRUNED)
