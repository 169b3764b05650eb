"""When an open batch in streaming mode looks at its bus: as soon as that tells that something came, else by the
clock.
"""

from __future__ import annotations

import time
from typing import Final

from eventbridge.decision.streaming_pace import UNANNOUNCED_SECONDS, look_seconds
from eventbridge.sources.protocol import AnnouncingLog, LogSource
from eventbridge.stages.operate.streaming_targets import TargetQueues

#: A bus that so many times in a row did not tell what came, as it was written from elsewhere, is not relied on.
_MOST_UNANNOUNCED: Final = 3


class BusPolls:
    """The looks of one batch, and what it does between them: it carries its deliveries."""

    def __init__(self, source: LogSource, targets: TargetQueues) -> None:
        self._announcements = source.announcements() if isinstance(source, AnnouncingLog) else None
        self._targets = targets
        self._heard = self._waited = False
        self._unannounced = 0

    def begin(self) -> None:
        """Begin a look; whatever comes from here on is announced again."""
        self._heard = self._announcements is not None and self._announcements.take_signal()

    def rest(self, found: int, since: float, *, left: bool) -> None:
        """Carry deliveries until the next look is due.

        The last one found so many events, and `left` some; `since` it last found any so many seconds have passed.
        """
        if found:
            self._unannounced = self._unannounced + 1 if self._waited and not self._heard else 0
        self._waited = False
        if self._announcements is None or self._unannounced >= _MOST_UNANNOUNCED or self._targets.waits:
            self._targets.run_for(look_seconds(found, since))
            return
        if found and self._targets.run_for(
            look_seconds(found, 0.0)
        ):  # so that what comes close behind is found together
            return
        if not left:
            began = time.monotonic()
            self._targets.run_for(UNANNOUNCED_SECONDS, self._announcements)
            self._waited = time.monotonic() - began >= UNANNOUNCED_SECONDS
