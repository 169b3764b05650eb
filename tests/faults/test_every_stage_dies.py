"""The crash matrix of a small batch: every stage is stopped at every call that can lose data, and nothing is lost.

`proof.check` checks each trial; docs/contributing/promises.md has the numbers of trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import matrix
from faults.crash import crashes
from faults.page import page_rows, table_rows
from faults.receiver import receiving
from faults.trial import Scene
from faults.world import STREAMING_KINDS

_BATCH_STAGES = matrix.batch_stages_of_test()
_FAILING = [batch_stage for batch_stage in _BATCH_STAGES if matrix.fails_in_test(batch_stage)]
_SENDING = [
    batch_stage
    for batch_stage in _BATCH_STAGES
    if batch_stage[1] == "push" or batch_stage[0] in ("streaming", "takeover")
]


@pytest.fixture(scope="module")
def scene(worlds: Path) -> Iterator[Scene]:
    """Provide a fork server, a receiver and a folder for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(worlds, server, log)


@pytest.mark.parametrize("batch_stage", _BATCH_STAGES, ids="-".join)
def test_a_stage_that_dies_anywhere_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """A stage that exits or is killed at its n-th call is finished by the next run, and nothing is lost.

    n is every call before which something durable changed. A push repeats its calls for each response, so after the
    first dozen every third one is tried.
    """
    tried = matrix.at_once(matrix.kills(scene, batch_stage, matrix.deaths_of_test(scene, batch_stage)))

    assert tried >= 2, "a stage changes the ledger: it dies at a commit, and after it"


@pytest.mark.parametrize("batch_stage", _FAILING, ids="-".join)
def test_a_call_that_fails_anywhere_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """If disk, ledger or bus fails at the n-th call, the stage ends with the product's error, and nothing is lost.

    The commit of each transaction and the first of consecutive equal calls fail. A push repeats its calls for each
    response, so after the first dozen every third one fails.
    """
    tried = matrix.at_once(matrix.failures(scene, batch_stage, matrix.failures_of_test(scene, batch_stage)))

    assert tried >= 2, "a stage changes the ledger: its commit fails, or its response is lost"


@pytest.mark.parametrize("batch_stage", _SENDING, ids="-".join)
def test_a_connection_that_breaks_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """If the connection of any request breaks before it is read or before its response, nothing is lost."""
    tried = matrix.at_once(matrix.drops(scene, batch_stage))

    assert tried >= 4, "two requests, each lost before and after it is read"


@pytest.mark.parametrize("batch_stage", _BATCH_STAGES, ids="-".join)
def test_two_attempts_of_a_stage_at_once_lose_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """If an attempt pauses, another one finishes, and the first one then continues, nothing is lost."""
    tried = matrix.at_once(matrix.overlaps(scene, batch_stage, matrix.OVERLAPS))

    assert tried == matrix.OVERLAPS


def test_to_die_again_while_recovering_loses_nothing(scene: Scene) -> None:
    """If a stage is killed and its recovery is killed too, nothing is lost."""
    tried = matrix.at_once(matrix.double_kills(scene))

    assert tried == matrix.DOUBLE_KILLS


def test_both_modes_by_turns_lose_nothing(scene: Scene) -> None:
    """If streaming tasks and stages alternate at random and one to four faults hit them, nothing is lost."""
    batch_stages = [batch_stage for batch_stage in _BATCH_STAGES if batch_stage[0] in STREAMING_KINDS]

    tried = matrix.at_once(matrix.random_schedules(scene, matrix.MIXED, among=batch_stages))

    assert tried == matrix.MIXED


def test_the_page_says_what_was_tried(scene: Scene) -> None:
    """The table of crash points in docs/contributing/promises.md has the numbers that these tests count."""
    assert page_rows() == table_rows(scene)
