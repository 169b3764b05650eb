"""Defines the path of each kind of file in the store, and the version of the file formats.

`date` and `hour` come from the batch's `planned_at` (UTC), never from the writer's clock, so that two attempts of one
stage always write to the same folder. A file of a newer format is refused, because this version may not understand it;
a file that names no version is of format 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from eventbridge.errors import NewerFormatError, StoreFileDamaged

#: The path prefix of all backtest reports; they sort by day.
BACKTEST_REPORTS: Final = "reports/backtest/"

#: The path prefix of the records of running backtests.
RUNNING_BACKTESTS: Final = "reports/running_backtest/"

#: The path prefix of the larger files of compactions, and of the lists of compacted files.
COMPACTED: Final = "compacted/"

#: The path prefix of the lists of compacted files; they sort by day.
COMPACTED_LISTS: Final = "compacted/lists/"

_FOLDER_OF_DAY = re.compile(r"(?!compacted/)[^/]+/(bus=[^/]+/)?date=(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})/")
_BATCH_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: The newest format that this version reads, and the one that it writes, for Parquet files and manifests.
FORMAT: Final = 1

#: The metadata key in which a Parquet file names its format.
PARQUET_KEY: Final = "eventbridge.format"


def rule_set(rule_set_hash: str) -> str:
    """Return the path of a frozen rule set."""
    return f"rulesets/{rule_set_hash}.json"


def buffer(bus: str, planned_at: datetime, batch_id: str, attempt: str) -> str:
    """Return the path of an archive file, which holds a part of one of its batch's ranges; `attempt` is unique per
    try."""
    at = planned_at.astimezone(UTC)
    return f"buffer/bus={bus}/date={at:%Y-%m-%d}/hour={at:%H}/{batch_id}-{attempt}.parquet"


def inbox(bus: str, topic: str, at: datetime, attempt: str) -> str:
    """Return the path of a file of messages that a queue handed out at the given time; `attempt` is unique per try."""
    return f"inbox/bus={bus}/topic={topic}/date={at.astimezone(UTC):%Y-%m-%d}/{attempt}.parquet"


def inbox_of_topic(bus: str, topic: str) -> str:
    """Return the path prefix of all files in a topic's inbox; they sort by day."""
    return f"inbox/bus={bus}/topic={topic}/"


def canary() -> str:
    """Return the path of a buffer file with a test event. The event shows whether Spark can route at all."""
    return "canary/event.parquet"


def deliveries(planned_at: datetime, batch_id: str, attempt: str, part: str) -> str:
    """Return the path of one file of routed deliveries; `attempt` is unique per try of the route stage or its task."""
    return f"deliveries/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}/{attempt}/part-{part}.parquet"


def batch_of_deliveries(path: str) -> str:
    """Return the id of the batch that routed a file of deliveries."""
    return path.split("/")[2]


def outcomes(planned_at: datetime, batch_id: str, chunk_id: int, claim: int, number: int) -> str:
    """Return the path of one outcome segment."""
    return f"outcomes/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}/{chunk_id}-{claim}-{number}.parquet"


def open_outcomes(planned_at: datetime, batch_id: str, number: int) -> str:
    """Return the path of one outcome segment of an open batch; an open batch has no chunks yet."""
    return f"outcomes/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}/streaming-{number}.parquet"


def settlement(planned_at: datetime, batch_id: str, supplement: int = 0) -> str:
    """Return the path of a batch's settlement (0) or of its n-th supplement."""
    suffix = f"-{supplement}" if supplement else ""
    return f"settlements/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}{suffix}.parquet"


def dead_letters(planned_at: datetime, batch_id: str, number: int) -> str:
    """Return the path of the n-th file of a batch's dead letters."""
    return f"dead_letters/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}-{number}.parquet"


def batch_of_dead_letters(path: str) -> str:
    """Return the id of the batch that a dead letter file belongs to."""
    return path.rpartition("/")[2].rpartition("-")[0]


def manifest(planned_at: datetime, batch_id: str) -> str:
    """Return the path of a committed batch's manifest."""
    return f"manifests/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}.json"


def quality(hour: datetime, check_id: str, kind: str) -> str:
    """Return the path of the record (`kind` json) or the page (`kind` html) about the check of an hour."""
    at = hour.astimezone(UTC)
    return f"quality/date={at:%Y-%m-%d}/hour={at:%H}/{check_id}.{kind}"


def repair(planned_at: datetime, batch_id: str, number: int) -> str:
    """Return the path of the audit record of a batch's n-th repair."""
    return f"repairs/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}-{number}.json"


def erasure(at: datetime, erasure_id: str) -> str:
    """Return the path of the record of an erasure."""
    return f"erasures/{at.astimezone(UTC):%Y-%m-%d}-{erasure_id}.json"


def runner(name: str) -> str:
    """Return the path of the file that names the ledger with a runner's state."""
    return f"runners/{name}.json"


def repairs_of_day(planned_at: datetime) -> str:
    """Return the path prefix of the audit records for repairs of batches of one day."""
    return f"repairs/date={planned_at.astimezone(UTC):%Y-%m-%d}/"


def folders_of_day(planned_at: datetime, buses: Sequence[str]) -> list[str]:
    """Return the path prefixes of all files of a day's batches, except manifests and records of repairs."""
    date = f"date={planned_at.astimezone(UTC):%Y-%m-%d}/"
    areas = [*(f"buffer/bus={bus}" for bus in buses), "deliveries", "outcomes", "settlements", "dead_letters"]
    return [f"{area}/{date}" for area in areas]


def files_of_batch(planned_at: datetime, batch_id: str) -> list[str]:
    """Return the path prefixes of a batch's deliveries, outcomes and settlements."""
    date = f"date={planned_at.astimezone(UTC):%Y-%m-%d}"
    return [f"{area}/{date}/{batch_id}" for area in ("deliveries", "outcomes", "settlements")]


def archive_of_batch(bus: str, planned_at: datetime, batch_id: str) -> str:
    """Return the path prefix of the files that a batch landed."""
    return buffer(bus, planned_at, batch_id, "").removesuffix(".parquet")


def dead_letters_of_batch(planned_at: datetime, batch_id: str) -> str:
    """Return the path prefix of a batch's dead letters."""
    return f"dead_letters/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}-"


def backtest_report(made_at: datetime, backtest_id: str, suffix: str) -> str:
    """Return the path of a backtest's report; `suffix` is json or md."""
    return f"{BACKTEST_REPORTS}date={made_at.astimezone(UTC):%Y-%m-%d}/{backtest_id}.{suffix}"


def running_backtest(name: str) -> str:
    """Return the path of the record that says how far a running backtest is."""
    return f"{RUNNING_BACKTESTS}{name}.json"


def batch_deliveries(planned_at: datetime, batch_id: str) -> str:
    """Return the path prefix of a batch's files of routed deliveries."""
    return f"deliveries/date={planned_at.astimezone(UTC):%Y-%m-%d}/{batch_id}/"


def event_index(day: datetime, index_id: str) -> str:
    """Return the path of a file in the index of event ids, for batches planned on one day."""
    return f"index/date={day.astimezone(UTC):%Y-%m-%d}/{index_id}.parquet"


def indexed_files(index_path: str) -> str:
    """Return the path of the file that lists the archive files to which the numbers in an index file refer."""
    return f"{index_path.removesuffix('.parquet')}-files.parquet"


def event_indexes() -> str:
    """Return the path prefix of all files in the index of event ids."""
    return "index/"


def day_in_path(path: str) -> str | None:
    """Return the day, in the form 2026-01-31, whose folder a path is in; None if its folder is not that of a day."""
    found = _FOLDER_OF_DAY.match(path)
    return None if found is None else found["day"]


def batch_in_name(path: str) -> str | None:
    """Return the id of the batch that a path names, or None."""
    found = _BATCH_ID.search(path)
    return None if found is None else found.group()


def compacted(folder: str, name: str, suffix: str) -> str:
    """Return the path of a larger file, into which files of the folder of a day were compacted."""
    return f"{COMPACTED}{folder}/{name}.{suffix}"


def compacted_list(day: str, area: str, name: str) -> str:
    """Return the path of a list of compacted files of a day, such as 2026-01-31, whose topmost folder is `area`."""
    return f"{COMPACTED_LISTS}date={day}/{area}-{name}.parquet"


def compacted_lists(day: str) -> str:
    """Return the path prefix of the lists of a day's compacted files."""
    return f"{COMPACTED_LISTS}date={day}/"


def day_of_list(path: str) -> str:
    """Return the day, in the form 2026-01-31, of the files that a list of compacted files names."""
    return path.removeprefix(f"{COMPACTED_LISTS}date=").partition("/")[0]


def area_of_list(path: str) -> str:
    """Return the topmost folder of the files that a list of compacted files names."""
    return path.rpartition("/")[2].partition("-")[0]


def manifests_of_day(day: datetime) -> str:
    """Return the path prefix of the manifests of a day's batches."""
    return f"manifests/date={day.astimezone(UTC):%Y-%m-%d}/"


def require_known_format(path: str, file_format: object) -> None:
    """Check that a file's format can be read; `file_format` is a number or its decimal string, or None if not given.

    Raises NewerFormatError for a newer format, StoreFileDamaged for a value that is not a number.
    """
    if file_format is None:
        return
    try:
        number = int(str(file_format))
    except ValueError as error:
        raise StoreFileDamaged(f"{path!r} names {file_format!r} as its format, which is not a number.") from error
    if number > FORMAT:
        raise NewerFormatError(path, number, FORMAT)
