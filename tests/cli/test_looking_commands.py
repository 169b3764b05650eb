"""`status`, `audit`, `dead-letters`, `targets enable` after a delivery in which everything happened."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.policy.breaker import Tally
from eventbridge.runtime.open import open_runtime

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def rows(out: str, title: str) -> list[list[str]]:
    """Return the cells of a table, without its header; cells are separated by two spaces."""
    _, _, after = out.partition(f"{title}\n")
    lines = after.split("\n\n")[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_status_of_a_runner_that_never_ran(eventbridge: Callable[..., Any]) -> None:
    """Before the first run: the runner is named with where it will start, and that there is no ledger is noted."""
    result = eventbridge("status")

    assert result.code == 0
    assert result.out == (
        "The runner orders has never run: 0 events wait for its first run. The bus orders has `start_at: earliest`.\n"
    )
    assert "there is no ledger at" in result.err
    assert eventbridge("rules", "pause", "all-orders").code == 0  # makes the ledger
    assert eventbridge("status").err == ""


@pytest.mark.parametrize(("start_at", "waiting"), [("earliest", "3 events wait"), ("latest", "0 events wait")])
def test_status_before_the_first_run_says_what_waits(
    start_at: str, waiting: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """Events that the first run will take are counted, by where the bus starts; sections without rows are left out."""
    shop.write_rules(start_at=start_at)
    eventbridge("events", "publish", "orders", shop.orders(1, 2, 3))

    said = eventbridge("status").out

    assert said.startswith(f"The runner orders has never run: {waiting} for its first run.")
    assert said.count("\n") == 1
    assert eventbridge("status", "--json").json["unregistered"][0]["waiting"] == int(waiting[0])


def test_status_counts_one_event_as_one(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """One event waits, and is not called events."""
    eventbridge("events", "publish", "orders", shop.orders(1))

    assert "never run: 1 event waits for its first run." in eventbridge("status").out


def test_status_without_a_runner_says_so(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Rule files without a rule, and a ledger without history, are one sentence."""
    (shop.rules / "orders.yaml").write_text("buses: {orders: {source: {type: embedded}}}\n")

    assert eventbridge("status").out == "No runner: the rule files have no rules, and nothing has run yet.\n"


def test_status_after_a_delivery(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Partitions, batches, pending deliveries with what holds them, and the targets that fail or are disabled."""
    out = eventbridge("status").out

    partitions = rows(out, "Partitions, in events")
    assert [row[:4] for row in partitions] == [
        ["orders", "orders", topic, n] for topic in ("paid", "placed") for n in "01"
    ]
    assert sum(int(row[4]) for row in partitions) == 6
    assert all(row[6:] == ["0", "0", "0"] for row in partitions)
    ((batch, kind, runner, state, *_),) = rows(out, "Newest batches, times in UTC")
    assert UUID.fullmatch(batch)
    assert (kind, runner, state) == ("normal", "orders", "committed")
    pending = {row[1]: row for row in rows(out, "Pending deliveries")}
    assert pending["gone"][2] == "on_hold"
    assert pending["gone"][4:] == ["3", "target disabled"]
    assert pending["flaky"][2:5] == ["scheduled", "retry_scheduled", "4"]
    unhealthy = rows(out, "Unhealthy targets, times in UTC")
    assert [row[1:3] for row in unhealthy] == [["flaky", "failing"], ["gone", "disabled"]]


def test_status_shows_what_waits_on_the_bus(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Lag is what is available as long as no batch has taken it; the table and JSON say the same."""
    eventbridge("events", "publish", "orders", shop.orders(1))
    shop.deliver()
    eventbridge("events", "publish", "orders", shop.orders(*range(7)))

    found = eventbridge("status", "--json").json
    partitions = rows(eventbridge("status").out, "Partitions, in events")

    assert sum(partition["lag"] for partition in found["partitions"]) == 7
    assert [str(q[name]) for q in found["partitions"] for name in ("lag", "in_flight", "available")] == [
        cell for row in partitions for cell in row[6:]
    ]


def test_status_forecasts_when_the_lag_is_zero(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """What full batches settled says what a runner can; what waits beside it says when all is settled."""
    eventbridge("events", "publish", "orders", shop.orders(*range(8)))
    shop.deliver(EVENTBRIDGE_BATCH_MAX_EVENTS="4")
    eventbridge("events", "publish", "orders", shop.orders(*range(8, 12)))

    flows = [each for each in eventbridge("status", "--json").json["flows"] if each["capacity"] is not None]
    shown = rows(eventbridge("status").out, "Flow of the last five minutes, in events a second")

    assert sum(each["published"] for each in flows) == pytest.approx(12 / 300)
    assert sum(each["settled"] for each in flows) == pytest.approx(8 / 300)
    assert all(each["capacity"] > each["published"] and not each["grows"] for each in flows)
    assert any(each["drains_in_seconds"] > 0 for each in flows)
    assert [row[:2] for row in shown] == [["orders", "orders"]] * 4
    assert [float(row[4]) for row in shown if row[4] != "0.0"] == [each["published"] for each in flows]


@pytest.mark.parametrize("waiting", [0, 40])
def test_status_of_a_runner_whose_bus_was_replaced(
    waiting: int, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """No number is made up, be the new log shorter or longer: where it lies, both identities, and the remedy."""
    shutil.rmtree(delivered.folder / "home" / "bus")
    eventbridge("events", "publish", "orders", delivered.orders(*range(waiting)))

    result = eventbridge("status")
    placed = [row for row in rows(result.out, "Partitions, in events") if row[2] == "placed"]
    found = [
        each for each in eventbridge("status", "--json").json["partitions"] if each["partition"]["topic"] == "placed"
    ]

    assert result.code == 0
    assert re.match(
        r"The runner 'orders' is at .*file://\S*/orders\.sqlite has the identity .*with a new name", result.out
    )
    assert result.out.count("Put the right log back") == 1
    assert [row[6:] for row in placed] == [["unknown"] * 3] * 2
    assert [(each["lag"], each["in_flight"], each["available"]) for each in found] == [(None, None, None)] * 2
    assert all("with the identity" in each["gap"] for each in found)
    assert sum(each["end"] for each in found) == waiting


def test_status_limits_batches(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """--batches says how many of the newest are shown."""
    assert len(eventbridge("status", "--json").json["batches"]) == 1
    assert eventbridge("status", "--batches", "0", "--json").json["batches"] == []


def test_audit_accounts_for_everything(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The sums of every target add up, and there is no difference."""
    result = eventbridge("audit")

    deliveries = {row[0]: list(map(int, row[1:])) for row in rows(result.out, "Deliveries")}
    assert result.code == 0
    assert deliveries == {
        "all-orders/archive": [4, 4, 0, 0],
        "all-orders/bad": [4, 0, 0, 4],
        "all-orders/flaky": [4, 0, 4, 0],
        "all-orders/gone": [4, 0, 3, 1],
        "big-orders/accounts": [2, 2, 0, 0],
        "big-orders/note": [2, 1, 0, 1],
    }
    assert result.out.endswith("0 differences: every event is accounted for\n")
    assert re.search(r"malformed +2\n", result.out)


def test_audit_finds_a_missing_file(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Each file of the reconciliation that is missing is a difference: exit code 1, as text and as JSON."""
    store = delivered.folder / "home" / "store"
    gone = [
        path for folder in ("outcomes", "settlements", "dead_letters") for path in (store / folder).rglob("*.parquet")
    ]
    for path in gone:
        path.unlink()

    result = eventbridge("audit")
    found = eventbridge("audit", "--json")

    assert (result.code, found.code) == (1, 1)
    assert "DIFFERENCE " in result.out
    assert "0 differences" not in result.out
    assert "`eventbridge batches repair BATCH --dry-run` shows what can be repaired" in result.out
    assert [any(path.name in each for each in found.json["differences"]) for path in gone] == [True] * len(gone)
    assert len(gone) > 2


@pytest.mark.parametrize("written", [b'{"x":', b"[]", b"\xff"])
def test_audit_finds_a_damaged_manifest(delivered: Any, eventbridge: Callable[..., Any], written: bytes) -> None:
    """It is a difference that names the file, and everything else is audited."""
    (manifest,) = (delivered.folder / "home" / "store" / "manifests").rglob("*.json")
    manifest.write_bytes(written)

    (difference,) = eventbridge("audit", "--json").json["differences"]

    assert f"{manifest.name} is damaged" in difference


def test_audit_refuses_a_manifest_of_a_newer_format(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """It is a difference with the remedy; one that names no format was written before there were any, and is read."""
    (manifest,) = (delivered.folder / "home" / "store" / "manifests").rglob("*.json")
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: value for name, value in said.items() if name != "format"}))
    before = eventbridge("audit", "--json").json["differences"]
    manifest.write_text(json.dumps(said | {"format": 2}))

    (difference,) = eventbridge("audit", "--json").json["differences"]

    assert before == []
    assert f"{manifest.name} is of format 2" in difference
    assert "Install the version that wrote it" in difference


def test_audit_of_whole_files_finds_what_no_sum_is_made_of(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A damaged event in the archive: every event is accounted for, and `--whole` names the file."""
    file = next((delivered.folder / "home" / "store" / "buffer").rglob("*.parquet"))
    columns = pq.read_metadata(file).row_group(0)
    body = next(columns.column(n) for n in range(columns.num_columns) if columns.column(n).path_in_schema == "body")
    data = bytearray(file.read_bytes())
    data[body.data_page_offset + body.total_compressed_size - 1] ^= 1
    file.write_bytes(data)

    result = eventbridge("audit", "--whole")

    assert result.code == 1
    assert file.name in result.out
    assert "1 difference:" in result.out
    assert eventbridge("audit").code == 0


def test_audit_of_one_batch_by_the_beginning_of_its_id(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """--batch takes a prefix; what names none, or several, is the user's error."""
    batch = eventbridge("status", "--json").json["batches"][0]["batch_id"]
    assert eventbridge("audit", "--batch", batch[:9].upper(), "--json").json["batches"] == 1
    assert eventbridge("audit", "--batch", batch, "--json").json["deliveries"]["all-orders/gone"]["pending"] == 3

    eventbridge("events", "publish", "orders", delivered.orders(1))
    delivered.deliver()

    for wrong, said in (("0", "2 batch ids begin with '0'"), ("xyz", "no batch 'xyz'"), ("", "no batch ''")):
        result = eventbridge("audit", "--batch", wrong)
        assert result.code == 2
        assert said in result.err


def test_audit_of_nothing(eventbridge: Callable[..., Any]) -> None:
    """Before anything is committed the audit says so, instead of that all is well."""
    found = eventbridge("audit").out
    assert found == "0 committed batches, 0 still open\n0 differences: nothing has been committed yet\n"


def test_dead_letters_are_listed(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """One line each: name (of the delivery id or, malformed, the position), rule, target, reason, event, detail."""
    listed = rows(eventbridge("dead-letters", "list").out, "Dead letters")

    reasons = sorted(row[3] if UUID.match(row[0]) else row[1] for row in listed)  # malformed: no rule, no target
    assert len(listed) == 8
    assert reasons == ["malformed"] * 2 + ["non_retryable"] * 4 + ["target_gone", "transform_failed"]
    assert all(re.fullmatch(rf"({UUID.pattern}|orders/placed/[01]/\d)@[0-9a-f]{{8}}", row[0]) for row in listed)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--rule", "big-orders"), 1),
        (("--target", "bad"), 4),
        (("--reason", "malformed"), 2),
        (("--rule", "all-orders", "--reason", "target_gone"), 1),
        (("--limit", "3"), 3),
    ],
)
def test_dead_letters_are_chosen(
    options: tuple[str, ...], count: int, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """--rule, --target, --reason and --limit choose."""
    assert len(eventbridge("dead-letters", "list", *options, "--json").json) == count


def test_dead_letters_that_cannot_be_chosen(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A reason that is none is an error; a rule that no file names is a note with the nearest; more is noted too."""
    assert "Did you mean non_retryable?" in eventbridge("dead-letters", "list", "--reason", "NonRetriable").err
    assert "Did you mean big-orders?" in eventbridge("dead-letters", "list", "--rule", "big-order").err
    assert "more than 3" in eventbridge("dead-letters", "list", "--limit", "3").err


def test_a_dead_letter_is_shown_whole(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """By delivery id or its beginning: the event as it arrived, the request, each attempt, the last response."""
    (listed,) = eventbridge("dead-letters", "list", "--target", "gone", "--json").json
    delivery_id = listed["delivery_id"]

    shown = eventbridge("dead-letters", "show", delivery_id)
    record = eventbridge("dead-letters", "show", delivery_id.replace("-", "")[:10].upper(), "--json").json

    assert shown.code == 0
    for part in (delivery_id, "target_gone", "Event\n", "Request\n", "Attempts", "410", "Last response\n  gone"):
        assert part in shown.out
    assert record["delivery_id"] == delivery_id
    assert record["name"] == listed["name"]
    assert record["attempts"][0]["code"] == 410
    assert '"type": "order.placed"' in record["event"]


def test_a_malformed_event_is_shown_by_where_it_lies(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """It has no delivery id: `bus/topic/partition/offset` names it, with or without the bus."""
    malformed = eventbridge("dead-letters", "list", "--reason", "malformed", "--json").json
    name = next(each["name"] for each in malformed if "not JSON" in each["detail"])

    for given in (name, name.removeprefix("orders/")):
        shown = eventbridge("dead-letters", "show", given)

        assert shown.code == 0
        assert "Event\n  not json\n" in shown.out
        assert "malformed" in shown.out


def test_a_missing_file_of_dead_letters_is_reported(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The warning names batch, store and file, and says what to do; the exit code is 1, as something is missing."""
    for path in (delivered.folder / "home" / "store" / "dead_letters").rglob("*.parquet"):
        path.unlink()

    result = eventbridge("dead-letters", "list")

    assert result.code == 1
    cause = (
        r"The store file:\S+ has no file 'dead_letters/\S+'\. Restore it.*`eventbridge batches repair \S+ --dry-run`"
    )
    assert re.match(rf"Warning: dead letters were skipped: batch \S+ cannot be read: {cause}", result.err)


def test_names_of_no_dead_letter(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Nonsense, nothing and too short a prefix are the user's errors, the last with what it could mean."""
    listed = eventbridge("dead-letters", "list", "--json").json
    ids = [each["delivery_id"] for each in listed if each["delivery_id"]]
    (prefix,) = [digit for digit in "0123456789abcdef" if sum(each.startswith(digit) for each in ids) > 1][:1]

    nonsense = eventbridge("dead-letters", "show", "no-such-thing")
    nothing = eventbridge("dead-letters", "show", "orders/placed/9/9")
    ambiguous = eventbridge("dead-letters", "show", prefix)

    assert [nonsense.code, nothing.code, ambiguous.code] == [2, 2, 2]
    assert "delivery id or its beginning" in nonsense.err
    assert "there is no dead letter" in nothing.err
    assert [each for each in ids if each.startswith(prefix) and each not in ambiguous.err] == []


def test_the_newest_dead_letter_of_a_delivery_is_shown(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The same event published again dies again, under the same id: the newest is shown, the others are noted."""
    (first, *_) = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    eventbridge("events", "publish", "orders", str(delivered.folder / "all.jsonl"))
    delivered.deliver()

    shown = eventbridge("dead-letters", "show", first["delivery_id"], "--json")

    assert f"this is the newest of 2 dead letters of {first['delivery_id']}" in shown.err
    assert shown.json["batch_id"] > first["batch_id"]


def test_enabling_a_target(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """What was on hold is due; again nothing changes; RULE/TARGET is one name; an unknown one gets the nearest."""
    first = eventbridge("targets", "enable", "all-orders/gone")
    again = eventbridge("targets", "enable", "all-orders", "gone", "--json")
    wrong = eventbridge("targets", "enable", "all-orders", "gon")

    assert first.out == "Target all-orders/gone enabled; it was disabled. 3 waiting deliveries are due now.\n"
    assert again.json == {"rule": "all-orders", "target": "gone", "before": "ok", "released": 0}
    assert wrong.code == 2
    assert "Did you mean gone?" in wrong.err
    after = eventbridge("status", "--json").json
    assert [(each["target"], each["state"]) for each in after["targets"]] == [("flaky", "failing")]
    assert [row["state"] for row in after["pending"] if row["target"] == "gone"] == ["scheduled"]


def test_enabling_a_target_ends_its_pause(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The message says so, once; an expired pause counts as none."""
    runtime = open_runtime(Settings.from_mapping(delivered.environ), connections_from_environment(delivered.environ))
    until = runtime.clock() + timedelta(minutes=30)
    runtime.ledger.targets.record_attempts([Tally("all-orders", "archive", paused_until=until)])

    first = eventbridge("targets", "enable", "all-orders", "archive")
    again = eventbridge("targets", "enable", "all-orders", "archive")

    assert first.out == "Target all-orders/archive enabled; it was paused. 0 waiting deliveries are due now.\n"
    assert again.out == "Target all-orders/archive is already enabled.\n"
    assert runtime.ledger.targets.statuses()["all-orders", "archive"].paused_until is None
    runtime.close()


def test_enabling_a_target_reports_a_remaining_pause(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A target that an operator paused gets nothing until it is resumed, whatever its breaker says."""
    assert eventbridge("targets", "pause", "all-orders/archive").code == 0

    enabled = eventbridge("targets", "enable", "all-orders/archive")

    assert "Note: its deliveries still wait: target paused. Run `eventbridge targets resume all-orders/archive`" in (
        enabled.err
    )


def test_targets_are_listed(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Every target of the current files: how it stands, why, and how many of its deliveries wait."""
    found = {line["target"]: line for line in eventbridge("targets", "list", "--json").json}

    assert (found["gone"]["state"], found["gone"]["waiting"]) == ("disabled", 3)
    assert found["gone"]["reason"] == "the target responded with 410"
    assert found["archive"]["state"] == "ok"
    assert "gone" in eventbridge("targets", "list").out


def test_looking_changes_nothing(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """status, audit and dead-letters write no file into store, ledger or bus that was not there before."""
    before = _files(delivered.folder / "home")

    for command in (("status",), ("audit",), ("dead-letters", "list"), ("dead-letters", "show", "placed/0")):
        eventbridge(*command)

    assert before == _files(delivered.folder / "home")


LOOKING = [
    "status",
    "status --chunks",
    "status --failures",
    "audit",
    "events why o1",
    "events show o1",
    "events find",
    "buses list",
    "buses show orders",
    "queues list",
    "batches list",
    "batches show 0123",
    "stats",
    "dead-letters list",
    "dead-letters show 0123",
    "redrives list",
    "dead-letters export -",
    "redrives start --all --dry-run",
    "replays start orders --from 1h --dry-run",
    "replays list",
    "replays show 0123",
    "targets list",
    "targets show all-orders/archive",
    "tokens show crm",
    "redrives show 0123",
    "targets check all-orders/archive",
    "tokens list",
    "schemas list",
    "plugins list",
    "quality list",
    "batches repair 0123 --dry-run",
    "maintain --dry-run",
    "rules check",
    "rules list",
    "rules show all-orders",
    "rules show all-orders@1",
    "rules history",
    "rules shadow all-orders",
    "rules test all-orders",
    "rules backtest all-orders --from 1h",
    "rules diff all-orders all-orders --from 1h",
]


@pytest.mark.parametrize("command", LOOKING)
def test_looking_makes_nothing(command: str, shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Beside rule files that nothing has run with, and in a wrong folder, a look leaves no file and no folder."""
    before = _files(shop.folder)
    output = eventbridge(*command.split(), stdin=b"")
    after_a_look = _files(shop.folder)
    shutil.rmtree(shop.rules)
    wrong = eventbridge(*command.split(), stdin=b"")

    assert after_a_look == before
    assert not [each for each in _files(shop.folder) if each not in before]
    assert output.code in (0, 2)
    assert wrong.code in (0, 2)


def test_a_look_without_a_ledger_says_which_one_is_missing(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """What waits is shown all the same; the note names the ledger that was looked for, and the setting."""
    shown = eventbridge("status")

    assert "The runner orders has never run" in shown.out
    assert f"there is no ledger at {shop.folder / 'home' / 'ledger.sqlite'}" in shown.err
    assert "EVENTBRIDGE_HOME" in shown.err
    assert eventbridge("rules", "pause", "all-orders").code == 0
    assert (shop.folder / "home" / "ledger.sqlite").exists()


def test_a_lost_ledger_is_not_created_by_a_read_command(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """Beside a store and a bus with events, too: an empty one in its place would look like the one that was lost."""
    for file in (delivered.folder / "home").glob("ledger.sqlite*"):
        file.unlink()
    before = _files(delivered.folder / "home")

    shown = eventbridge("status")

    assert _files(delivered.folder / "home") == before
    assert "there is no ledger at" in shown.err


def _files(folder: Path) -> set[str]:
    # SQLite's own companions come and go
    return {str(path) for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm"))}
