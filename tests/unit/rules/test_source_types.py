"""Types of sources: those of a package are read, described, frozen and opened as the built-in one."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from installed_package import install

from eventbridge.config.settings import Settings
from eventbridge.errors import RuleFileError, TypeUnusable, UserError
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import as_source
from eventbridge.rules.types import SOURCE_TYPES
from eventbridge.sources.open import open_log, open_publisher, open_source
from eventbridge.sources.protocol import TrimmableLog

RULES = "rules: {r: {bus: b, pattern: {}, targets: {t: {type: file, path: /x}}}}\n"

#: A package with a log that can be published to, one that can only be read from, and a partition.
MODULE = """
from typing import Literal
from pydantic import Field
from eventbridge.plugins import SourceFields
from eventbridge.rules import Source
from eventbridge.rules.types import SourceType
from eventbridge.testing.sources import InMemoryLog

class RiverFields(Source):
    type: Literal["river", "canal", "leak"] = "river"
    depth: int = Field(gt=0, description="a number of metres")

class PondFields(SourceFields):
    type: Literal["pond"] = "pond"

def open_river(opening):
    return InMemoryLog(topics=opening.source.topics, partitions=opening.source.depth, clock=opening.clock)

def open_pond(opening):
    return Pond()

class Pond:
    def receive(self, at_most): return []
    def acknowledge(self, receipts): pass
    def waiting(self): return 0

class Only:
    kind = "log"
    def __init__(self, opening): self.closed = False
    def close(self): self.closed = True

RIVER = SourceType("river", RiverFields, "acme_water:open_river")
POND = SourceType("pond", PondFields, "acme_water:open_pond")
CANAL = SourceType("canal", RiverFields, "acme_water:Only")
LEAK = SourceType("leak", RiverFields, "acme_water:nothing")
"""


@pytest.fixture(autouse=True)
def _water(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that has the source types river, pond, canal and leak."""
    points = "\n".join(f"{name} = acme_water:{name.upper()}" for name in ("river", "pond", "canal", "leak"))
    install(tmp_path / "site", monkeypatch, "acme_water", MODULE, {"eventbridge.sources": points})


def read(folder: Path, source: str) -> RuleSet:
    """Read a rule file whose bus has this source."""
    folder.mkdir(exist_ok=True)
    (folder / "r.yaml").write_text(f"buses:\n  b:\n    source: {{{source}}}\n{RULES}")
    return load_rules(folder)


def opening(tmp_path: Path, source: dict[str, object]) -> tuple[object, ...]:
    """Return what a source is opened with."""
    settings = Settings.from_mapping({"EVENTBRIDGE_HOME": str(tmp_path)})
    return Bus(name="b", source=as_source(source)), settings, None, lambda: datetime.now(UTC)


def test_a_type_of_a_package_is_read_and_frozen(tmp_path: Path) -> None:
    """Its fields and those of every log are read, and survive being frozen."""
    rules = read(tmp_path / "rules", "type: river, depth: 3, topics: [a, b], start_at: earliest")
    source = rules.buses["b"].source

    assert (source.type, source.topics, source.start_at) == ("river", ("a", "b"), "earliest")
    assert source.depth == 3  # type: ignore[attr-defined]
    assert rules == RuleSet.from_json(rules.to_json())
    assert SOURCE_TYPES.names() == ["embedded", "kafka", "rocketmq", "sqs", "river", "pond", "canal", "leak"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("type: river", "3:5: $.buses.b.source: a source needs the field depth. Add depth: ..."),
        ("type: river, depth: deep", "depth: input should be a valid integer, unable to parse string as an integer"),
        (
            "type: river, depth: 0",
            "$.buses.b.source.depth: depth: input should be greater than 0. Expected: a number of",
        ),
        (
            "type: river, depth: 1, partitions: 3",
            "$.buses.b.source.partitions: a river source has no partitions. Remove it.",
        ),
        ("type: pond, topics: [a]", "$.buses.b.source.topics: a pond source has no topics. Remove it."),
        ("type: river, depth: 1, start_at: now", "$.buses.b.source.start_at: 'now' is not a time."),
        (
            "type: embedded, depth: 1",
            "$.buses.b.source.depth: unknown field 'depth' of a source. Known fields: type, ",
        ),
        ("type: rivr, depth: 1", "$.buses.b.source.type: unknown type 'rivr' of a source. Did you mean river?"),
    ],
)
def test_its_errors_are_reported_at_their_place(tmp_path: Path, source: str, said: str) -> None:
    """Each with line, path and remedy, as for the built-in type."""
    with pytest.raises(RuleFileError) as caught:
        read(tmp_path / "rules", source)

    (error,) = caught.value.errors
    assert said in str(error)


def test_a_log_of_a_package_is_read_from_and_published_to(tmp_path: Path) -> None:
    """What its opener returns meets the protocols that it meets, and only those."""
    bus = opening(tmp_path, {"type": "river", "depth": 2})

    with closing(open_log(*bus)) as log, closing(open_publisher(*bus)) as publisher:  # type: ignore[arg-type]
        assert len(log.partitions()) == 2
        assert publisher.publish([(b"x", None)])
        assert not isinstance(log, TrimmableLog)


def test_a_queue_is_no_log(tmp_path: Path) -> None:
    """It has no offsets: a read by ranges gets an error that says so."""
    bus = opening(tmp_path, {"type": "pond"})

    with closing(open_source(*bus)) as source:  # type: ignore[arg-type]
        assert source.kind == "queue"
    with pytest.raises(UserError, match="bus 'b' has type pond, which is a queue, so it cannot be read by offset"):
        open_log(*bus)  # type: ignore[arg-type]


def test_a_bus_that_is_only_read_from_is_not_published_to(tmp_path: Path) -> None:
    """A publisher gets an error that says how."""
    with pytest.raises(UserError, match=r"has type canal, which EventBridge only reads\. Publish with the broker"):
        open_publisher(*opening(tmp_path, {"type": "canal", "depth": 2}))  # type: ignore[arg-type]


def test_a_missing_opener_is_reported(tmp_path: Path) -> None:
    """The message names type, package and opener."""
    with pytest.raises(
        TypeUnusable, match=r"opener acme_water:nothing of the source type 'leak' of the package acme_water"
    ):
        open_source(*opening(tmp_path, {"type": "leak", "depth": 2}))  # type: ignore[arg-type]
