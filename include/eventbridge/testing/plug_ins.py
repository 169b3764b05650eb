"""Provides an installation for the tests of a plug-in, with rule files, buses and deliveries, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.check_rules import check_folder
from eventbridge.control.publish import publish_events
from eventbridge.control.try_target import check_target
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.pipeline.deliver import Idle, deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.lease import Bounds
from eventbridge.streaming.task import deliver_streaming


class Installation:
    """An installation in a folder, which is empty or holds an earlier one, with one rule file.

    `variables` are environment variables, such as `EVENTBRIDGE_CONN_CRM` for the connection `crm`. Use it in a `with`
    block.
    """

    def __init__(self, folder: Path, rules: str, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._rules = folder / "rules"
        self._rules.mkdir(parents=True, exist_ok=True)
        (self._rules / "rules.yaml").write_text(rules)
        given = {**(variables or {})}
        own = {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_RULES_FOLDER": str(self._rules),
            "EVENTBRIDGE_PREPARE_TIMEOUT": "10m",  # the first event after an installation waits for compiled code
        }
        connections = {name: given.pop(name) for name in list(given) if name.startswith("EVENTBRIDGE_CONN_")}
        self._settings = Settings.from_mapping({**own, **given})
        self._runtime = open_runtime(self._settings, connections_from_environment(connections))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runtime.close()

    def rule_errors(self) -> list[str]:
        """Return the errors in the rule file, as `eventbridge rules check` prints them; the name of the file is left
        out, so that each begins with its line and column."""
        found = check_folder(self._rules, self._settings.target_locations, relative=True)
        return [str(error).removeprefix("rules.yaml:") for error in found.errors]

    def publish(self, bus: str, *events: Mapping[str, Any]) -> None:
        """Publish events; `specversion`, `id`, `source` and `type` are filled in if they are missing."""
        whole = [
            {"specversion": "1.0", "id": str(uuid4()), "source": "/test", "type": "test", **event} for event in events
        ]
        publish_events(self._runtime, bus, None, [json.dumps(each).encode() for each in whole])

    def deliver(self, runner: str, *, wait_seconds: float = 0.0, streaming: bool = False) -> Idle:
        """Deliver all events of a runner, and retries that fall due within `wait_seconds`; a bus has a runner of its
        name. With `streaming`, a streaming task takes the events, until no more come for a second."""
        if streaming:
            deliver_streaming(self._runtime, runner, Stop(), Bounds(idle_seconds=1.0, makes_retries=False))
        return deliver_until_idle(
            self._runtime, runner, InProcessRouter(self._runtime.store), wait_seconds=wait_seconds
        )

    def check(self, rule: str, target: str) -> str | None:
        """Return why a target cannot be reached, None if it can, as `eventbridge targets check`."""
        return check_target(self._runtime, rule, target)

    def lines(self, path: str) -> list[Any]:
        """Return what a file target wrote, each line parsed as JSON; empty if it wrote nothing."""
        file = self._settings.home / "files" / path
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters, the newest first, with `rule`, `target`, `reason`, `detail` and more."""
        return [each.record for each in select_dead_letters(self._runtime)]
