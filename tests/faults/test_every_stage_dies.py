"""The crash matrix of a small batch: every stage is stopped at every call that can lose data, and nothing is lost.

What must hold after each trial is in `proof.check`; the numbers of trials stand in docs/contributing/promises.md.
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
    """A fork server, a receiver, and room for worlds."""
    with crashes() as server, receiving() as log:
        yield Scene(worlds, server, log)


@pytest.mark.parametrize("batch_stage", _BATCH_STAGES, ids="-".join)
def test_a_stage_that_dies_anywhere_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """Ended at its n-th call, by itself or by SIGKILL, for every n: the next run finishes it, nothing is lost.

    For every n before which something changed that outlives the process, and of a push, whose calls come again with
    each response, for every third of these after the first dozen.
    """
    tried = matrix.at_once(matrix.kills(scene, batch_stage, matrix.deaths_of_test(scene, batch_stage)))

    assert tried >= 2, "a stage changes the ledger: it dies at a commit, and after it"


@pytest.mark.parametrize("batch_stage", _FAILING, ids="-".join)
def test_a_call_that_fails_anywhere_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """Disk, ledger or bus fails at the n-th call, for every n: it ends in the product's error; nothing is lost.

    Of a transaction the commit fails, of equal calls in a row the first. Of a push, whose calls come again with each
    response, every third one after the first dozen.
    """
    tried = matrix.at_once(matrix.failures(scene, batch_stage, matrix.failures_of_test(scene, batch_stage)))

    assert tried >= 2, "a stage changes the ledger: its commit fails, or its response is lost"


@pytest.mark.parametrize("batch_stage", _SENDING, ids="-".join)
def test_a_connection_that_breaks_loses_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """The n-th request finds its connection broken, before it is read or before its response, for every n."""
    tried = matrix.at_once(matrix.drops(scene, batch_stage))

    assert tried >= 4, "two requests, each lost before and after it is read"


@pytest.mark.parametrize("batch_stage", _BATCH_STAGES, ids="-".join)
def test_two_attempts_of_a_stage_at_once_lose_nothing(batch_stage: matrix.BatchStage, scene: Scene) -> None:
    """An attempt pauses, another does all of its work, and then the first one continues unaware of it."""
    tried = matrix.at_once(matrix.overlaps(scene, batch_stage, matrix.OVERLAPS))

    assert tried == matrix.OVERLAPS


def test_to_die_again_while_recovering_loses_nothing(scene: Scene) -> None:
    """A stage is killed, and the recovery from that is killed as well."""
    tried = matrix.at_once(matrix.double_kills(scene))

    assert tried == matrix.DOUBLE_KILLS


def test_both_modes_by_turns_lose_nothing(scene: Scene) -> None:
    """Streaming tasks and stages take turns at one runner, by chance, and one to four faults meet them."""
    batch_stages = [batch_stage for batch_stage in _BATCH_STAGES if batch_stage[0] in STREAMING_KINDS]

    tried = matrix.at_once(matrix.random_schedules(scene, matrix.MIXED, among=batch_stages))

    assert tried == matrix.MIXED


def test_the_page_says_what_was_tried(scene: Scene) -> None:
    """docs/contributing/promises.md: the table of crash points has the numbers that the tests above count."""
    assert page_rows() == table_rows(scene)
