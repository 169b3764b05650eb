"""Lists the archive files of a replay in the order in which the replay reads them.

Audits import this module because, unlike the selection of events, it does not import the compiled matcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from eventbridge.errors import ReconciliationError
from eventbridge.model.redelivery import ArchiveFile, Replay, ReplayPart, ReplayPosition
from eventbridge.policy.archive_cover import Span, take_once
from eventbridge.runtime.runtime import Runtime

#: The maximum number of files that are listed at a time for one runner, so that a year of them is never in memory.
_AT_A_TIME = 1_000

#: An archive file and the offsets that may be taken from it; None means all of them.
FileToRead = tuple[ArchiveFile, tuple[Span, ...] | None]


def files_from(runtime: Runtime, replay: Replay, position: ReplayPosition) -> Iterator[tuple[FileToRead, int]]:
    """Yield the archive files of a replay's part, beginning at a position, each with the first row to read.

    Raises ReconciliationError if the ledger no longer has the file of the position.
    """
    part = replay.parts[position.part]
    found = (
        _files_of_only_runner(runtime, replay, part, position)
        if part.alone
        else iter(_files_read_once(runtime, replay, part))
    )
    if not position.file:
        for each in found:
            yield each, 0
        return
    for each in found:
        if each[0].path == position.file:
            break
    else:
        raise ReconciliationError(
            f"replay {replay.replay_id} stopped at {position.file}, which is no longer in the ledger. "
            f"Cancel it (`eventbridge replays cancel {replay.replay_id[:8]}`) and start a new one"
        )
    if position.row < each[0].rows:
        yield each, position.row
    for each in found:
        yield each, 0


def _files_of_only_runner(
    runtime: Runtime, replay: Replay, part: ReplayPart, position: ReplayPosition
) -> Iterator[FileToRead]:
    since = datetime.fromisoformat(position.at) if position.at else replay.since
    seen: set[str] = set()
    while True:
        files = runtime.ledger.archive.files(
            replay.bus, since, replay.until, replay.started_at, runner=part.runner, limit=_AT_A_TIME + len(seen)
        )
        fresh = [file for file in files if file.path not in seen]
        for file in fresh:
            yield file, None
        if len(files) < _AT_A_TIME + len(seen):
            return
        # The next page begins at the time of the last file, so it repeats the files of that time listed so far.
        since = files[-1].planned_at
        seen = {file.path for file in files if file.planned_at == since}


def _files_read_once(runtime: Runtime, replay: Replay, part: ReplayPart) -> Sequence[FileToRead]:
    files = runtime.ledger.archive.files(replay.bus, replay.since, replay.until, replay.started_at)
    return take_once(files, part.runner)
