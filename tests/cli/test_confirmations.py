"""What an acting command says when it is done: what it did, in the past tense, and what happens next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventbridge.cli.output import end_text

ID = "0192a7c4-0000-7000-8000-000000000001"


def test_published_rules_are_in_force_with_the_next_batch(
    shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes are counted and named; a second time there is none."""
    monkeypatch.setenv("EVENTBRIDGE_RULES_FROM", "published")

    first, second = eventbridge("rules", "publish"), eventbridge("rules", "publish")

    assert first.out == (
        "changed: all-orders\nchanged: big-orders\n"
        "2 rules published, 2 changed or added, 0 removed. The next batch of each runner uses them.\n"
    )
    assert second.out == "2 rules published. None has changed since the last time.\n"


def test_a_copied_ledger_is_to_be_used_from_now_on(
    delivered: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migrated ledger can be used, and a copy is to be used instead of the old one."""
    copy = f"sqlite:///{delivered.folder}/copy.sqlite"
    monkeypatch.setenv("EVENTBRIDGE_LEDGER_URL", copy)

    migrated, again = eventbridge("ledger", "migrate"), eventbridge("ledger", "migrate")
    copied = eventbridge("ledger", "copy", f"sqlite:///{delivered.environ['EVENTBRIDGE_HOME']}/ledger.sqlite", copy)

    assert migrated.out.endswith("; before: no tables. Processes can use it now.\n")
    assert again.out.endswith(". Nothing was changed.\n")
    assert copied.out.splitlines()[-1].endswith(
        " copied. Set EVENTBRIDGE_LEDGER_URL to the copy, and do not use the old ledger again."
    )


def test_a_repaired_batch_is_to_be_audited(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Which file was rebuilt, where that is recorded, and how to check it."""
    batch = eventbridge("batches", "list", "--json").json[0]["batch_id"]
    (path, *_) = (delivered.folder / "home" / "store" / "deliveries").rglob("*.parquet")
    path.unlink()

    lines = eventbridge("batches", "repair", batch).out.splitlines()

    assert lines[0].startswith("cannot be read: deliveries/")
    assert lines[1].startswith("rebuilt: deliveries/")
    assert lines[2].startswith(f"Batch {batch} repaired: 1 file rebuilt; recorded in repairs/")
    assert lines[3:] == [f"It is committed. `eventbridge audit --batch {batch}` checks it again."]


def test_a_token_is_named_beside_its_secret(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """The secret alone is on standard output, so that a script can keep it."""
    made = eventbridge("tokens", "create", "shop", "--scope", "publish:orders")

    assert len(made.out.split()) == 1
    assert made.err.endswith(
        "Note: token shop created with publish:orders. It is shown only once: store it with your secrets\n"
    )


def test_dags_are_imported_by_airflow_later(tmp_path: Any, eventbridge: Callable[..., Any]) -> None:
    """The first time files are written, the second time nothing changes."""
    folder = tmp_path / "dags"

    first, second = (eventbridge("init-airflow", str(folder), "--create").out for _ in range(2))

    assert first.startswith(f"Created {folder}.\nWrote {folder}/eventbridge_dags.py.\n")
    assert "\nAirflow imports the DAGs when it next reads the folder" in first
    assert second.endswith(f"{folder}/eventbridge_rule_errors.py was up to date.\nNothing was changed.\n")


@pytest.mark.parametrize(
    ("state", "outcomes", "end"),
    [
        ("done", {"delivered": 2}, "done: 2 events taken, 2 delivered. Nothing of it is left to do."),
        ("running", {"delivered": 1}, "1 delivered. `eventbridge replays resume 0192a7c4` continues it."),
        ("paused", {}, "paused: 2 events taken, none delivered. `eventbridge replays resume 0192a7c4` continues it."),
        ("cancelled", {"delivered": 1}, "1 delivered. What it did not take stays as it is."),
        (
            "done",
            {"dead_lettered": 1, "pending": 1},
            "The DAG eventbridge_retry_deliveries or `eventbridge deliver` tries the pending ones again.",
        ),
        ("done", {"dead_lettered": 2}, "`eventbridge dead-letters list` shows why some became dead letters."),
    ],
)
def test_the_end_of_a_replay_says_what_happens_next(state: str, outcomes: dict[str, int], end: str) -> None:
    """By its state, and by what its deliveries still need."""
    text = end_text("replay", ID, state, "2 events", outcomes)

    assert text.startswith(f"Replay {ID} {'interrupted' if state == 'running' else state}: ")
    assert text.endswith(end)
