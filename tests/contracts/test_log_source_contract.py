"""What every log source must do: each test runs against the embedded bus, the fake, and real brokers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from contracts.log_sources import LOGS, PARTITIONS, START, TOPICS, AnyLog, Clock, broker_of, drop_older, publish

from eventbridge import fault_points
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.protocol import LogSource, Publisher
from eventbridge.sources.rocketmq.log import RocketmqLog


def test_it_is_a_log_source(log: AnyLog) -> None:
    """Type checkers see the protocols met: it is read by range, as its kind says, and published to."""
    source: LogSource = log
    publisher: Publisher = log

    assert source.kind == "log"
    assert isinstance(publisher, Publisher)


def test_a_log_keeps_its_identity(log: AnyLog, partition: Partition, clock: Clock) -> None:
    """It was given when the log was made: nothing that happens to messages and offsets changes it."""
    identities = log.identities()
    publish(log, [b"1", b"2"])
    log.commit("crm", {partition: 1})
    clock.move(10)
    drop_older(log, clock.now, clock)

    assert log.identities() == identities
    assert identities.keys() == (set() if isinstance(log, RocketmqLog) else set(TOPICS))
    assert all(len(identity) >= 36 for identity in identities.values())


@pytest.mark.parametrize("kind", [kind for kind in LOGS if kind != "rocketmq"])  # which gives topics no identity
def test_a_recreated_log_has_another_identity(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> None:
    """Same name, same partitions, same messages, but not the same log."""
    first = LOGS[kind](request, tmp_path / "first", clock)
    was = first.identities()
    first.close()
    second = LOGS[kind](request, tmp_path / "second", clock)

    assert all(second.identities()[topic] != was[topic] for topic in TOPICS)
    second.close()


def test_a_log_says_where_it_lies(log: AnyLog) -> None:
    """The URI is for messages: one that names a bus can be found by it."""
    assert re.match(r"[a-z]+:", log.uri)


def test_partitions_exist_before_any_message(log: AnyLog) -> None:
    """An empty log has its partitions, each beginning and ending at 0."""
    partitions = [
        Partition(topic, broker_of(log), partition_id) for topic in TOPICS for partition_id in range(PARTITIONS)
    ]

    assert list(log.partitions()) == partitions
    assert [log.earliest(partition) for partition in partitions] == [0] * 6
    assert [log.end(partition) for partition in partitions] == [0] * 6
    assert log.ends() == dict.fromkeys(partitions, 0)


@pytest.mark.parametrize(
    "unknown", [Partition("orders", "", 3), Partition("refunds", "", 0), Partition("orders", "broker-z", 0)]
)
def test_a_missing_partition_is_refused(log: AnyLog, unknown: Partition) -> None:
    """Every question about a partition the log does not have raises BusError, not an empty response."""
    for ask in (
        lambda: log.earliest(unknown),
        lambda: log.end(unknown),
        lambda: log.offset_at(unknown, START),
        lambda: log.read(unknown, 0, 0),
        lambda: log.commit("audit", {unknown: 1}),
    ):
        with pytest.raises(BusError):
            ask()


def test_committed_offsets_are_kept_per_group(log: AnyLog, partition: Partition) -> None:
    """What a group commits is what it gets back; another group and another partition have none."""
    publish(log, [b"x"] * 5)
    log.commit("crm", {partition: 3})
    log.commit("audit", {partition: 5})

    assert log.committed("crm") == {partition: 3}
    assert log.committed("audit") == {partition: 5}
    assert log.committed("nobody") == {}


def test_a_commit_may_be_repeated(log: AnyLog, partition: Partition) -> None:
    """The same commit twice is the same as once; partitions that a later commit does not name keep theirs."""
    other = Partition("returns", broker_of(log), 0)
    log.commit("crm", {partition: 0, other: 0})
    log.commit("crm", {partition: 3})
    log.commit("crm", {partition: 3})

    assert log.committed("crm") == {partition: 3, other: 0}


def test_the_bus_does_not_judge_offsets(log: AnyLog, partition: Partition) -> None:
    """The last commit counts, be it lower: only the ledger promises that offsets never go back."""
    publish(log, [b"x"] * 5)
    log.commit("crm", {partition: 4})
    log.commit("crm", {partition: 2})

    assert log.committed("crm") == {partition: 2}


@pytest.mark.parametrize("point", ["bus.publish", "bus.publish.done", "bus.commit", "bus.commit.done", "bus.read"])
def test_a_test_can_stop_every_call(log: AnyLog, partition: Partition, point: str) -> None:
    """Before `.done` nothing has happened, after it all has: the seam that the fault tests stand on."""
    publish(log, [b"1"])

    def stop(reached: str) -> None:
        if reached == point:
            raise RuntimeError(point)

    fault_points.install(stop)
    stopped = []
    for step, act in {
        "bus.publish": lambda: publish(log, [b"2"]),
        "bus.commit": lambda: log.commit("crm", {partition: 1}),
        "bus.read": lambda: list(log.read(partition, 0, 1)),
    }.items():
        try:
            act()
        except RuntimeError:
            stopped.append(step)
    fault_points.install(None)

    assert stopped == [point.removesuffix(".done")]
    assert log.end(partition) == (1 if point == "bus.publish" else 2)
    assert log.committed("crm") == ({} if point == "bus.commit" else {partition: 1})
