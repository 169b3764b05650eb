"""How a task fails if a person must act. The end-to-end tests read its log in a real Airflow."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from airflow.sdk import DAG, RetryAction
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.tasks import NO_RETRY_POLICY, PlainFailure, hide_traceback, stage
from eventbridge.errors import LedgerError, UserError


def test_a_user_error_is_one_error_in_the_log(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The task exits, for which its runner logs no stack."""

    @hide_traceback
    def invalid() -> None:
        with stage():
            raise UserError("no rule file defines a rule 'bigg'. Did you mean big?")

    with caplog.at_level(logging.ERROR), pytest.raises(PlainFailure) as raised:
        invalid()

    assert [each.getMessage() for each in caplog.records] == ["no rule file defines a rule 'bigg'. Did you mean big?"]
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert isinstance(raised.value, SystemExit)


def test_only_plain_failures_are_not_retried() -> None:
    """An infrastructure error is retried as the task says; a plain failure is not."""
    decided = [NO_RETRY_POLICY.evaluate(error, 1, 3).action for error in (PlainFailure(1), LedgerError("locked"))]

    assert decided == [RetryAction.FAIL, RetryAction.DEFAULT]


def test_every_task_with_retries_has_the_policy(dags: dict[str, DAG]) -> None:
    """Without it, Airflow would retry an exit three times."""
    for dag in dags.values():
        for task in dag.tasks:
            if task.retries:
                assert task.retry_policy is NO_RETRY_POLICY, task.task_id


def test_a_users_own_task_fails_by_airflows_exception(home: Path) -> None:
    """The hook runs in tasks without the policy, so it raises an exception that Airflow does not retry."""
    with pytest.raises(AirflowFailException, match="no bus"), stage():
        raise UserError("no bus: set `bus`")
