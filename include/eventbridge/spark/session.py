"""Opens Connect sessions, one per server and runner, with a stable id so that warm workers are reused.

A runner's old work (replays, backtests) has a separate session, whose jobs run in one pool of Spark's fair scheduler.
While other jobs wait, the pool gets half of the task slots, however many old jobs there are; otherwise, it gets all of
them.
"""

from __future__ import annotations

import atexit
import ipaddress
import logging
import re
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from eventbridge.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

_NAMESPACE = uuid.UUID("7c2f5f0e-8f0b-5e0a-9a3c-6b1f0a4f2d11")

#: After this many closed sessions of one runner, a random id is used, which only loses the warm workers.
_GENERATIONS = 32

#: The parts of error classes that show a closed session. NO_ACTIVE_SESSION is the client's own error after the first
#: one.
_CLOSED_SESSION_ERRORS = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND", "NO_ACTIVE_SESSION")

#: The scheduler pool of all old work. Spark creates it with the same weight as the `default` pool for everything else;
#: `default` wins ties because its name sorts first.
OLD_WORK_POOL = "eventbridge-old"

_POOL = "spark.scheduler.pool"

_sessions: dict[tuple[str, str, bool], SparkSession] = {}


def connect(url: str, runner: str, *, old: bool = False) -> SparkSession:
    """Return this process's session with the server at `url` for a runner; callers must not stop it.

    `url` is sc://host:port, followed by /;token=T if the server has a token.

    If `old`, it is the session for the runner's old work, and leaves half of the task slots to others.

    A server closes sessions that were idle for a long time and rejects their ids afterwards, so the runner's next id is
    then used. Raises PySpark's errors if the server cannot be reached.
    """
    # PySpark warns about failed calls although it also raises their errors.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    key = (url, runner, old)
    if key not in _sessions:
        _sessions[key] = _open(url, f"{runner} old" if old else runner)
        if old:
            _sessions[key].conf.set(_POOL, OLD_WORK_POOL)
    return _sessions[key]


def forget(url: str, runner: str, *, old: bool = False) -> None:
    """Drop a failed session, so that the next call to `connect` opens a new one."""
    session = _sessions.pop((url, runner, old), None)
    if session is not None:
        session.client.close()


def session_id(runner: str, generation: int = 0) -> str:
    """Return the id of a runner's session, which is always the same for the same runner and generation."""
    return str(uuid.uuid5(_NAMESPACE, f"{runner}#{generation}"))


def session_url(url: str, session: str) -> str:
    """Return a Connect URL with a session id, replacing an existing one."""
    head, _, parameters = url.rstrip("/").partition("/;")
    kept = [part for part in parameters.split(";") if part and not part.startswith("session_id=")]
    return f"{head}/;" + ";".join([*kept, f"session_id={session}"])


def is_closed(error: Exception) -> bool:
    """Return whether an error means that the session is gone, because it was closed or the server was restarted."""
    return any(word in str(error) for word in _CLOSED_SESSION_ERRORS)


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

    # PySpark logs each failed call with a traceback although the caller also gets the error.
    for name in ("pyspark.sql.connect.client.logging", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    builder: Any = SparkSession.Builder()  # a new builder, because the class keeps the channel of the last session
    session: SparkSession = builder.channelBuilder(channel_builder(url)).create()
    # By default, a client retries an unreachable server for ten minutes; with this policy, for 0.05 + 0.2 + 0.8 + 3.2
    # s.
    session.client.set_retry_policies([DefaultPolicy(max_retries=4)])
    # Closing the client closes the channel but keeps the session for the next process. Otherwise, an ending process
    # would make one more call to the server, and wait half a minute if the server is gone.
    atexit.register(session.client.close)
    return session


Result = TypeVar("Result")


class RunnerJob(Protocol):
    """A job of a runner. If `old`, it is a job of old work, which has a separate session."""

    @property
    def runner(self) -> str:
        """Return the runner's name."""

    @property
    def old(self) -> bool:
        """Return whether the job is old work."""


def retry_results(url: str, job: RunnerJob, results: Callable[[SparkSession], Iterator[Result]]) -> Iterator[Result]:
    """Yield the results of `results` for a session with the server at `url`.

    The server may have been restarted since the last call, so if it first responds that the session is closed, a new
    session is used. Raises PySpark's errors.
    """
    from pyspark.errors import PySparkException

    first = True
    while True:
        try:
            for result in results(connect(url, job.runner, old=job.old)):
                first = False
                yield result
            return
        except PySparkException as error:
            if not (first and is_closed(error)):
                raise
            first = False
            forget(url, job.runner, old=job.old)


def rows_of(frame: DataFrame) -> Any:
    """Yield the rows of a frame as they arrive; the generator can be closed early."""
    yield from frame.toLocalIterator()


_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:[0-9]+)?", re.ASCII)


def redact_address(url: str) -> str:
    """Return only the scheme, host and port of a Connect URL, because all other parts may contain a secret."""
    scheme, _, rest = url.partition("://")
    host = re.split("[/?#]", rest.partition(";")[0].rpartition("@")[2])[0]
    return f"{scheme}://{host if _HOST_AND_PORT.fullmatch(host) else '...'}"


def with_token(url: str, token: str | None) -> str:
    """Return a Connect URL with a token, unless it already has one or the token is empty."""
    if not token or "token" in _parameters(url):
        return url
    head, _, parameters = url.rstrip("/").partition("/;")
    return f"{head}/;" + ";".join([*filter(None, [parameters]), f"token={quote(token, safe='')}"])


def is_cleartext(url: str) -> bool:
    """Return whether the channel to a Connect URL has no TLS.

    This is so for use_ssl=false and, by default, if the URL has no token or names this machine.
    """
    parameters = _parameters(url)
    use_ssl = parameters.get("use_ssl", "").lower()
    if use_ssl not in ("", "true", "false"):
        raise UserError(f"use_ssl of {redact_address(url)} is {use_ssl!r}. Write true or false.")
    if use_ssl:
        return use_ssl == "false"
    return "token" not in parameters or _is_this_machine(urlsplit(url).hostname or "")


def channel_builder(url: str) -> DefaultChannelBuilder:
    """Return the builder of a channel to a Connect URL that sends the URL's token with every call.

    PySpark itself sends a token only over TLS or to `localhost`, which over IPv6 may be another server.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    class TokenChannel(DefaultChannelBuilder):
        """A channel whose calls carry the URL's token even without TLS; with TLS, PySpark's own channel is used."""

        @property
        def token(self) -> str | None:
            """Return the URL's token, ignoring the environment's, which belongs to another server."""
            token: str | None = self.getDefault(self.PARAM_TOKEN, None)
            return token

        def toChannel(self) -> Any:
            """Open the channel."""
            return self._insecure_channel(self.endpoint) if clear else super().toChannel()

        def metadata(self) -> Iterable[tuple[str, str]]:
            """Return the metadata of every call."""
            authorization = [("authorization", f"Bearer {self.token}")] if clear and self.token else []
            return [*super().metadata(), *authorization]

    _refuse_malformed(url)
    clear = is_cleartext(url)
    return TokenChannel(url)


def _refuse_malformed(url: str) -> None:
    """Raise UserError, whose message shows no secret, for a URL that PySpark would refuse with a message that quotes
    it."""
    head, _, parameters = url.partition(";")
    scheme, _, rest = head.partition("://")
    if scheme == "sc" and "@" in rest:
        raise UserError(
            f"The address {redact_address(url)} of Spark Connect has a login, which Spark does not take. Remove it; "
            "a token follows as /;token=T, or in Airflow is the connection's password."
        )
    pairs = [part for part in parameters.split(";") if part]
    if scheme != "sc" or not _HOST_AND_PORT.fullmatch(rest.removesuffix("/")) or any("=" not in part for part in pairs):
        raise UserError(
            f"{redact_address(url)} is not the address of a Spark Connect server. Write sc://host:port, parameters as "
            "sc://host:port/;name=value"
        )


def _parameters(url: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in url.partition("/;")[2].split(";") if part)
    return {name: unquote(value) for name, _, value in pairs}


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
