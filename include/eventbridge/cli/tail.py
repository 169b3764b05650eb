"""Defines the command `events tail`, which shows what arrives on a bus and forwards it to a developer's server."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eventbridge.cli.output import (
    JsonOption,
    cell_text,
    note,
    plural,
    print_line,
    show_line_document,
    truncate,
    visible,
)
from eventbridge.cli.runtime import open_runtime, settings
from eventbridge.errors import UserError

if TYPE_CHECKING:
    from eventbridge.control.forward import Forwarded, Forwarder
    from eventbridge.matching.pattern import Pattern
    from eventbridge.rules import Bus
    from eventbridge.views.tail import Tail, TailedMessage

#: The wait between two reads of a bus.
_POLL_SECONDS: Final = 0.5


def tail(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="Name of the event bus in the rule files.")],
    pattern: Annotated[
        str | None, typer.Option(metavar="JSON", help="Only events that match this pattern, as in a rule.")
    ] = None,
    forward: Annotated[
        str | None, typer.Option(metavar="URL", help="Post each event to URL, and show the status of the response.")
    ] = None,
    secret_from: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE", help="Sign with the secret in this environment variable; default: a new secret."
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the first event that the bus still holds.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after N messages.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what arrives on a bus from now on, a line for each event: time, type, source, id and subject.

    No runner notices it: it has no consumer group, commits nothing and records nothing. Messages that are not events
    are shown as malformed. With -o json, each line is one document.

    --forward posts each event to URL, as CloudEvents in structured JSON, signed as in Standard Webhooks. Redirects are
    not followed, and nothing is sent twice: a failed request is shown. Ctrl-C ends the command.
    """
    from eventbridge.config.connection import connections_from_environment
    from eventbridge.sources.open import open_log
    from eventbridge.views.tail import Tail

    wanted = None if pattern is None else _pattern(pattern)
    if secret_from is not None and forward is None:
        raise typer.BadParameter("--secret-from needs --forward URL", param_hint="--secret-from")
    chosen, found, clock = settings(), _log_bus(bus), _now
    with ExitStack() as stack:
        stopped = stack.enter_context(_interrupted())
        forwarder = None
        if forward is not None:
            forwarder = stack.enter_context(closing(_forwarder(forward, secret_from, stopped.is_set)))
        source = open_log(found, chosen, connections_from_environment(os.environ), clock)
        stack.enter_context(closing(source))
        follower = Tail(source, found.source, chosen.event_max_size, from_beginning=from_beginning)
        note(f"showing {bus} {'from its first event' if from_beginning else 'from now on'}; Ctrl-C ends the command")
        show = _Show(bus, wanted, forwarder, as_json)
        try:
            _follow(follower, show, stopped, limit)
        finally:
            note(show.summary())


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def _pattern(text: str) -> Pattern:
    from eventbridge.matching.pattern import parse_pattern

    try:
        return parse_pattern(text)
    except (UserError, ValueError) as error:
        raise UserError(f"--pattern: {error}") from error


def _log_bus(name: str) -> Bus:
    """Return a bus that can be read without its runners noticing. Raises UserError for a queue."""
    from eventbridge.rules.find import find_bus

    with open_runtime(expects_ledger=True) as runtime:
        found = find_bus(runtime.rule_set(), name)
    if found.source.is_queue:
        raise UserError(
            f"the bus {name!r} is a queue ({found.source.type}): reading it would hide its messages from their "
            f"runners. Use `eventbridge events find --bus {name}`, which shows events that have landed"
        )
    return found


def _forwarder(url: str, variable: str | None, stopped: Callable[[], bool]) -> Forwarder:
    from eventbridge.control.forward import Forwarder, new_secret, shown_url

    if variable is None:
        secret = new_secret()
    elif not (secret := os.environ.get(variable, "")):
        # The message does not show a value that may be the secret itself.
        name = variable if re.fullmatch("[A-Z_][A-Z0-9_]*", variable) else "that --secret-from names"
        raise UserError(
            f"the variable {name} is not set. Set it to the secret, such as whsec_..., or omit --secret-from"
        )
    forwarder = Forwarder(url, secret, clock=_now, stopped=stopped)
    signed = f"the secret in {variable}" if variable is not None else f"the secret {secret}"
    note(f"each event is posted to {shown_url(url)}, signed with {signed} (Standard Webhooks)")
    return forwarder


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Yield what the first Ctrl-C sets; the second one ends the command at once."""
    stopped = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, _: object) -> None:
        signal.signal(signal.SIGINT, before)
        stopped.set()

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(follower: Tail, show: _Show, stopped: threading.Event, limit: int | None) -> None:
    while not stopped.is_set():
        for message in follower.poll():
            show.message(message)
            if stopped.is_set() or show.shown == limit:
                return
        stopped.wait(_POLL_SECONDS)


@dataclass
class _Show:
    """Shows messages, forwards events, and counts both."""

    bus: str
    pattern: Pattern | None
    forwarder: Forwarder | None
    as_json: bool
    shown: int = 0
    malformed: int = 0
    forwarded: int = 0
    failed: int = 0

    def message(self, message: TailedMessage) -> None:
        """Show a message, unless it is an event that the pattern does not match."""
        if not self._is_wanted(message):
            return
        response = self._forward(message)
        self.shown += 1
        self.malformed += message.malformed is not None
        if self.as_json:
            show_line_document(_document(message, response))
        else:
            print_line(_line(message, response))

    def summary(self) -> str:
        """Return the counts as one sentence."""
        parts = [f"{plural(self.shown, 'message', 'messages')} shown"]
        if self.malformed:
            parts.append(f"{self.malformed:,} malformed")
        if self.forwarder is not None:
            parts += [f"{self.forwarded:,} forwarded", f"{self.failed:,} failed"]
        return ", ".join(parts)

    def _is_wanted(self, message: TailedMessage) -> bool:
        from eventbridge.matching.reference import flatten, matches_leaves

        if self.pattern is None or message.event is None:
            return True
        return matches_leaves(self.pattern, flatten(message.event.document))

    def _forward(self, message: TailedMessage) -> Forwarded | None:
        if self.forwarder is None or message.event is None:
            return None
        from eventbridge.event.ids import delivery_id, delivery_id_text

        event = message.event
        webhook_id = delivery_id_text(delivery_id(self.bus, event.source, event.id, "", ""))
        response = self.forwarder.forward(webhook_id, event.body)
        self.forwarded += response.accepted
        self.failed += not response.accepted
        return response


def _line(message: TailedMessage, response: Forwarded | None) -> str:
    if message.event is not None:
        about = [message.event.type, message.event.source, message.event.id, message.event.document.get("subject")]
    else:
        topic, broker, number = message.partition
        position = "/".join(str(part) for part in (topic, broker, number, message.offset) if part != "")
        about = ["malformed", position, message.malformed] if message.malformed else ["tombstone", position]
    cells = [cell_text(message.published_at), *(truncate(visible(str(each))) for each in about if each is not None)]
    return "  ".join([*cells, *([] if response is None else [_result(response)])])


def _result(response: Forwarded) -> str:
    if response.status is None:
        return f"-> failed: {visible(str(response.error))}"
    redirect = " (redirects are not followed)" if 300 <= response.status < 400 else ""
    return f"-> {response.status} in {response.duration_ms:,.0f} ms{redirect}"


def _document(message: TailedMessage, response: Forwarded | None) -> dict[str, Any]:
    return {
        **message.partition._asdict(),
        "offset": message.offset,
        "published_at": message.published_at,
        "event": message.event and message.event.document,
        "malformed": message.malformed,
        "body": None if message.event is not None else message.body,
        "forwarded": response,
    }
