"""Connect sessions: one per server and runner, with a stable id, so that warm workers are found again.

A runner's old work has a session of its own, whose jobs run in one pool of Spark's fair scheduler: it gets half of the
task slots while other jobs wait, however many old jobs there are, and all of them otherwise.
"""

from __future__ import annotations

import atexit
import logging
import uuid
import warnings
from typing import TYPE_CHECKING, Any

from eventbridge.spark.channel import channel_builder

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_NAMESPACE = uuid.UUID("7c2f5f0e-8f0b-5e0a-9a3c-6b1f0a4f2d11")

#: After this many closed sessions of one runner a random id is used, which only loses the warm workers.
_GENERATIONS = 32

#: Parts of the error classes of a closed session; NO_ACTIVE_SESSION is the client's own error after the first one.
_GONE = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND", "NO_ACTIVE_SESSION")

#: The scheduler pool of all old work. Spark creates it with the same weight as the pool `default` of everything else,
#: which wins ties, because its name sorts first.
OLD_WORK_POOL = "eventbridge-old"

_POOL = "spark.scheduler.pool"

_sessions: dict[tuple[str, str, bool], SparkSession] = {}


def connect(url: str, runner: str, *, old: bool = False) -> SparkSession:
    """Return this process's session with the server at `url` for a runner; callers must not stop it.

    `url` is sc://host:port, followed by /;token=T if the server has a token.

    `old`: the session for the runner's old work, which leaves half of the task slots to others.

    A server closes sessions that were idle for long, and their ids; then the runner's next id is used. Raises PySpark's
    errors if the server cannot be reached.
    """
    # It warns of failed calls, which are raised anyway.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    key = (url, runner, old)
    if key not in _sessions:
        _sessions[key] = _open(url, f"{runner} old" if old else runner)
        if old:
            _sessions[key].conf.set(_POOL, OLD_WORK_POOL)
    return _sessions[key]


def forget(url: str, runner: str, *, old: bool = False) -> None:
    """Drop a failed session, so that the next call of `connect` finds another one."""
    session = _sessions.pop((url, runner, old), None)
    if session is not None:
        session.client.close()


def session_id(runner: str, generation: int = 0) -> str:
    """Return the id of a runner's session: always the same for the same runner and generation."""
    return str(uuid.uuid5(_NAMESPACE, f"{runner}#{generation}"))


def session_url(url: str, session: str) -> str:
    """Return a Connect URL with a session id, replacing an existing one."""
    head, _, parameters = url.rstrip("/").partition("/;")
    kept = [part for part in parameters.split(";") if part and not part.startswith("session_id=")]
    return f"{head}/;" + ";".join([*kept, f"session_id={session}"])


def is_closed(error: Exception) -> bool:
    """Return whether an error means that the session is gone: it was closed, or the server was restarted."""
    return any(word in str(error) for word in _GONE)


def _open(url: str, runner: str) -> SparkSession:
    from pyspark.errors import PySparkException

    for generation in range(_GENERATIONS):
        session = _create(session_url(url, session_id(runner, generation)))
        try:
            session.version  # noqa: B018 - the cheapest request to the server
        except PySparkException as error:
            if not is_closed(error):
                raise
        else:
            return session
    return _create(session_url(url, str(uuid.uuid4())))


def _create(url: str) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    # PySpark logs each failed call with a traceback, and the caller gets the error anyway.
    for name in ("pyspark.sql.connect.client.logging", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    builder: Any = SparkSession.Builder()  # a new builder: the class keeps the channel of the last session
    session: SparkSession = builder.channelBuilder(channel_builder(url)).create()
    # By default a client retries an unreachable server for ten minutes; this is 0.05 + 0.2 + 0.8 + 3.2 s.
    session.client.set_retry_policies([DefaultPolicy(max_retries=4)])
    # This closes the channel and keeps the session for the next process. Otherwise an ending process makes one more
    # call to the server, and waits half a minute if the server is gone.
    atexit.register(session.client.close)
    return session
