"""Reads the source of a plug-in, and checks what it returns. Every failure is a BusError that names the plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from eventbridge.errors import BusError, PlugInError, TypeUnusable
from eventbridge.fault_points import reach
from eventbridge.plug_in_calls import OpenedPlugIn, PlugIn, kind_of
from eventbridge.sources.messages import MESSAGES, RECEIVED

#: The maximum time that a call may take, in seconds.
_SECONDS: Final = 15.0
#: The maximum time that a count of waiting messages may take, in seconds: the watcher counts for all buses in turn.
_WAITING_SECONDS: Final = 3.0
_END: Final = object()

T = TypeVar("T")


class Message(NamedTuple):
    """A message that a plug-in received.

    `id` is the same each time the message is received. `receipt` acknowledges it, by default its id. `body` is an event
    in JSON, or what the bus's `mapping` makes an event of; None is a tombstone. `published_at` is an aware time, by
    default now.
    """

    body: bytes | None
    id: str
    receipt: str = ""
    published_at: datetime | None = None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None


class Receiver(Protocol):
    """What the opener of a source type returns. One thread uses it; `close` is optional.

    A message that is received and not acknowledged is received again after `visibility_timeout` seconds, 60 without
    such an attribute. A receiver that can make this wait begin again for messages has a method `extend(receipts)`.
    """

    def receive(self, at_most: int) -> Sequence[Message]:
        """Return waiting messages, none if there are none; wait a second at most."""

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages, which EventBridge has stored durably; unknown receipts are ignored."""

    def waiting(self) -> int:
        """Return about how many messages wait; cheap enough for a call every second."""


def open_plug_in(
    plug_in: PlugIn, opener: Callable[[], Any], label: str, clock: Callable[[], datetime], veil: Callable[[str], str]
) -> Any:
    """Return the opened source of a plug-in, a LogSource or a QueueSource; raises BusError, or UserError of the opener.

    `label` names the source in messages, and `veil` removes secrets from them.
    """
    calls = _Calls(plug_in, opener, veil)
    try:
        kind = calls(lambda opened: getattr(opened, "kind", "queue"))
        return PlugInLog(calls) if kind == "log" else PlugInQueue(calls, label, clock)
    except BusError:
        calls.close()
        raise


class _Calls:
    """Makes the calls of one opened source. After a call that was given up, its object is opened again."""

    def __init__(self, plug_in: PlugIn, opener: Callable[[], Any], veil: Callable[[str], str]) -> None:
        self.plug_in, self._opener, self._veil = plug_in, opener, veil
        self._opened = OpenedPlugIn(plug_in, opener, veil=veil)

    def __call__(self, use: Callable[[Any], T], seconds: float | None = None) -> T:
        """Return the result of `use` with the object; raises BusError, or the EventBridgeError that it raised."""
        opened = self._opened
        try:
            found: T = opened.call(use, _SECONDS if seconds is None else seconds)
        except (PlugInError, TypeUnusable) as error:
            if opened.is_given_up:
                opened.close()
                self._opened = OpenedPlugIn(self.plug_in, self._opener, veil=self._veil)
            raise BusError(f"{error}") from error
        return found

    def nonsense(self, what: str) -> BusError:
        """Return the error about something that the plug-in returned."""
        return BusError(str(self.plug_in.error(f"returned {what}")))

    def close(self) -> None:
        """Close the object, without waiting for it."""
        self._opened.close()


class PlugInQueue:
    """A queue source whose messages a plug-in receives."""

    kind: Literal["queue"] = "queue"

    def __init__(self, calls: _Calls, label: str, clock: Callable[[], datetime]) -> None:
        self._calls, self._clock = calls, clock
        self.uri = label
        found = calls(lambda opened: getattr(opened, "visibility_timeout", 60.0))
        if not isinstance(found, (int, float)) or not found >= 1:
            raise calls.nonsense(f"the visibility_timeout {found!r:.100}, which is not a number of seconds")
        self.visibility_timeout = float(found)

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return messages as one block of `RECEIVED`, see `protocol.QueueSource`."""
        reach("bus.receive")
        found = self._calls(lambda opened: opened.receive(at_most))
        if not isinstance(found, (list, tuple)) or len(found) > at_most:
            raise self._calls.nonsense(f"no list of at most {at_most} messages from receive, but {kind_of(found)}")
        now = self._clock()
        try:
            return pa.RecordBatch.from_pylist([self._row(each, now) for each in found], schema=RECEIVED)
        except (ValueError, OverflowError, pa.ArrowException) as error:  # half a character, or a time before year 1
            raise self._calls.nonsense(f"a Message that cannot be stored from receive ({error!r:.200})") from error

    def _row(self, found: Any, now: datetime) -> dict[str, Any]:
        if not isinstance(found, Message) or (wrong := _wrong_field(found)) is not None:
            name = kind_of(found) if not isinstance(found, Message) else f"a Message whose {wrong} is wrong"
            raise self._calls.nonsense(f"{name} from receive")
        headers = found.headers and [
            {"name": name, "value": value.encode("utf-8", "surrogatepass")} for name, value in found.headers.items()
        ]
        published = (found.published_at or now).astimezone(UTC)
        return {
            "receipt": found.receipt or found.id,
            "message_id": found.id,
            "published_at": published,
            "key": found.key,
            "headers": headers or None,
            "body": found.body,
        }

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, if the plug-in can."""
        found = self._calls(lambda opened: opened.extend(list(receipts)) if hasattr(opened, "extend") else receipts)
        is_right = isinstance(found, (list, tuple)) and len(found) == len(receipts)
        if found is not None and not (is_right and all(isinstance(each, str) for each in found)):
            raise self._calls.nonsense(f"{kind_of(found)} from extend, but must return a receipt for each, or None")
        return list(found or receipts)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages from the queue."""
        reach("bus.acknowledge")
        self._calls(lambda opened: opened.acknowledge(list(receipts)))
        reach("bus.acknowledge.done")

    def waiting(self) -> int:
        """Return about how many messages wait."""
        found = self._calls(lambda opened: opened.waiting(), _WAITING_SECONDS)
        if type(found) is not int or found < 0:
            raise self._calls.nonsense(f"{found!r:.100} from waiting, but must return a number of messages")
        return found

    def close(self) -> None:
        """Close the plug-in's object."""
        self._calls.close()


#: The methods of the optional protocols of a log.
_OPTIONAL: Final = (
    "announcements", "follow", "free_bytes", "lost_files", "max_bytes", "pages", "publish", "take_in", "trim"
)  # fmt: skip


class PlugInLog:
    """A log source of a plug-in, which implements `protocol.LogSource` and what other protocols of a bus it can.

    Every method is called in the plug-in's thread. Only blocks of messages are checked.
    """

    kind: Literal["log"] = "log"

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls
        # attributes of their own, because since Python 3.12 `isinstance` of a protocol does not call `__getattr__`
        for name in calls(lambda opened: [each for each in _OPTIONAL if hasattr(opened, each)]):
            setattr(self, name, getattr(self, name))

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of the plug-in's object."""
        found = self._calls(lambda opened: getattr(opened, name, _END))
        if found is _END:
            raise AttributeError(f"{self._calls.plug_in} has no {name}")
        if not callable(found):
            return found
        return lambda *args, **named: self._calls(lambda opened: getattr(opened, name)(*args, **named))

    def read(self, *arguments: Any) -> Iterator[pa.RecordBatch]:
        """Return an iterator of blocks, see `protocol.LogSource`."""
        blocks = self._calls(lambda opened: iter(opened.read(*arguments)))
        return self._checked(blocks)

    def _checked(self, blocks: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        while (block := self._calls(lambda _: next(blocks, _END))) is not _END:
            if not isinstance(block, pa.RecordBatch) or block.schema != MESSAGES or not block.num_rows:
                raise self._calls.nonsense(f"{kind_of(block)} from read, but must return blocks of the schema MESSAGES")
            yield block

    def close(self) -> None:
        """Close the plug-in's object."""
        self._calls.close()


def _wrong_field(found: Message) -> str | None:
    headers = {} if found.headers is None else found.headers
    is_text = isinstance(headers, Mapping) and all(isinstance(each, str) for pair in headers.items() for each in pair)
    at = found.published_at
    right = {
        "body": found.body is None or isinstance(found.body, bytes),
        "id": isinstance(found.id, str) and found.id != "",
        "receipt": isinstance(found.receipt, str),
        "published_at": at is None or (isinstance(at, datetime) and at.tzinfo is not None),
        "key": found.key is None or isinstance(found.key, bytes),
        "headers": is_text,
    }
    return next((name for name, is_right in right.items() if not is_right), None)
