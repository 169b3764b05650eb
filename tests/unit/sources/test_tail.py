"""Following a bus whose topic is created again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.buses import at_start

from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.views.tail import Tail


class Replaced:
    """A log in whose place another one may be put, as when a topic is created again."""

    def __init__(self, log: EmbeddedBus) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_message_of_a_topic_that_was_created_again_is_new(count: int, tmp_path: Path) -> None:
    """The new topic has fewer messages than the old one had, as many, or more."""
    with EmbeddedBus(tmp_path / "old", "shop", clock=at_start) as old:
        old.publish([(b"old", None)] * 2)
        source = Replaced(old)
        tail = Tail(source, EmbeddedFields(topics=("events",)), 1_000)
        before = [message.body for message in tail.poll()]
        with EmbeddedBus(tmp_path / "new", "shop", clock=at_start) as new:
            source.log = new
            new.publish([(b"new", None)] * count)
            after = [message.body for message in [*tail.poll(), *tail.poll()]]

    assert (before, after) == ([], [b"new"] * count)
