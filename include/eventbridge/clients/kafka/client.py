"""Reads the settings of a Kafka client from a connection, and sends requests to the brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from eventbridge.config.connection import Connection, require_type
from eventbridge.errors import BusError, ConnectionUnusable

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

#: The extras of a connection, named as in librdkafka, and their descriptions for the documentation page on Kafka.
EXTRAS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the brokers, instead of host and port",
    "security.protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; default: derived from the other settings",
    "sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` or `GSSAPI`; with a login: `PLAIN`",
    "sasl.mechanisms": "the same as `sasl.mechanism`",
    "sasl.username": "instead of login",
    "sasl.password": "instead of password",
    "sasl.oauthbearer.token.endpoint.url": "the token endpoint (OAuth 2 client credentials); `OAUTHBEARER` needs it",
    "sasl.oauthbearer.client.id": "instead of login",
    "sasl.oauthbearer.client.secret": "instead of password",
    "sasl.oauthbearer.scope": "the scope of the tokens",
    "sasl.oauthbearer.method": "`oidc`, the only supported method",
    "https.ca.location": "the file (PEM) of the CA certificates for the token endpoint",
    "sasl.kerberos.keytab": "the keytab file with the keys of the principal",
    "sasl.kerberos.principal": "the Kerberos principal of the client",
    "sasl.kerberos.service.name": "the Kerberos service name of the brokers",
    "ssl.*": "TLS settings, such as `ssl.ca.location` and `ssl.certificate.location`",
    "broker.address.family": "`v4` or `v6`; default: both",
    "client.id": "the name of the client in the brokers' logs and quotas",
    "client.rack": "the rack of the client, so that it reads from the nearest replica",
    "socket.timeout.ms": "how long a broker may take to respond",
}
#: Consumer settings, which connections for Airflow's Kafka operators often have; they are ignored.
_IGNORED: Final = frozenset({"auto.offset.reset", "enable.auto.commit", "group.id"})

_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"


def client_settings(connection: Connection) -> dict[str, str]:
    """Return the settings of a client from a connection: the brokers and the credentials.

    `host` holds one or several brokers, separated by commas; those without a port get the connection's, or 9092.
    `extra` holds settings of librdkafka, as for Airflow's Kafka provider (`EXTRAS`). A login means SASL PLAIN over TLS
    unless the extra sets something else. Raises ConnectionUnusable, whose message has no secrets, for an unusable
    connection or one whose type is not `kafka`.
    """
    require_type(connection, ("kafka",), "Kafka")
    extra = {name: _text(value) for name, value in connection.extra.items() if name not in _IGNORED}
    for name in extra:
        if name not in EXTRAS and not name.startswith("ssl."):
            raise _unusable(connection, f"its extra has {name!r}, which cannot be set in a connection", "Remove it")
    servers = extra.pop("bootstrap.servers", "") or _servers(connection)
    if not servers:
        raise _unusable(connection, "it names no broker", "Set its host, or bootstrap.servers in its extra")
    return {"bootstrap.servers": servers, **_login(connection, extra), **extra}


def _servers(connection: Connection) -> str:
    hosts = [host.strip() for host in connection.host.split(",") if host.strip()]
    return ",".join(host if ":" in host else f"{host}:{connection.port or 9092}" for host in hosts)


def _login(connection: Connection, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that follow from login, mechanism and TLS files; those in the extra take precedence."""
    given = extra.get("sasl.mechanism") or extra.get("sasl.mechanisms")
    mechanism = given or ("PLAIN" if connection.login else "")
    if not mechanism:
        return {"security.protocol": "SSL"} if any(name.startswith("ssl.") for name in extra) else {}
    if mechanism not in MECHANISMS:
        raise _unusable(
            connection, f"{mechanism!r} is not a supported SASL mechanism", f"Use one of {', '.join(MECHANISMS)}"
        )
    found = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        if not extra.get(_TOKEN_URL):
            raise _unusable(
                connection, "OAUTHBEARER needs the URL of a token endpoint", f"Set {_TOKEN_URL} in its extra"
            )
        found["sasl.oauthbearer.method"] = "oidc"
        names = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret")
    else:
        names = ("sasl.username", "sasl.password")
    if connection.login:
        found |= zip(names, (connection.login, connection.password), strict=True)
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unusable(connection: Connection, problem: str, remedy: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} cannot be used for Kafka: {problem}. {remedy}.")


Key = TypeVar("Key")

#: The maximum time for a query, including its repetitions.
RESPONSE_SECONDS: Final = 15.0

#: The time between two polls of a waiting client for errors.
_POLL_SECONDS: Final = 0.05

#: Errors that end a query immediately, because only a timeout would be reported after a longer wait.
_FATAL: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._FATAL,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)

#: Errors that are transient because leaders and coordinators move and brokers restart.
_TRANSIENT: Final = frozenset(
    {
        KafkaError._NOENT,  # no leader was found because the broker did not respond
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)


#: Errors of a broker for an unknown partition.
_UNKNOWN_PARTITION: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION})

#: Errors that report a missing response, but not why it is missing.
_VAGUE: Final = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._NOENT)

#: Settings of every client: no log on stderr, and no message about idle connections.
QUIET: Final[Mapping[str, Any]] = {"log_level": 0, "log.connection.close": False}

_REMEDIES: Final = {
    KafkaError._ALL_BROKERS_DOWN: "Start the brokers, or correct the connection's host",
    KafkaError._AUTHENTICATION: "Correct login, password and sasl.mechanism of the connection",
    KafkaError._RESOLVE: "Correct the connection's host",
    KafkaError._SSL: "Renew the broker's certificate if it has expired, or correct the TLS files of the connection",
    KafkaError._TIMED_OUT: "Start the brokers, or correct the connection's host",
    KafkaError._TRANSPORT: "Start the brokers, or correct the connection's host",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Allow the connection's login to read and commit for the group",
    KafkaError.SASL_AUTHENTICATION_FAILED: "Correct login and password of the connection",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Allow the connection's login to describe, read and write the topic",
    KafkaError.UNKNOWN_MEMBER_ID: "Another program consumes as a member of this group: give the runner another name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create the topic, or correct topics in the rule file",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "Correct sasl.mechanism of the connection",
}


class ClientErrors:
    """Collects the errors of a client: the callback `error_cb` of its settings."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._fatal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Record an error; the first fatal one is kept."""
        self._last = error
        if error.code() in _FATAL or error.fatal():
            self._fatal = self._fatal or error

    @property
    def fatal(self) -> KafkaError | None:
        """Return the fatal error, if there was one."""
        return self._fatal

    def instead_of(self, error: KafkaError) -> KafkaError:
        """Return the error to report, which for a timeout is the error that preceded it."""
        found = self._fatal or self._last
        return found if found is not None and error.code() in _VAGUE else error


def bus_error(servers: str, doing: str, error: KafkaError) -> BusError:
    """Return the BusError for a client's error, with a remedy; `doing` names what failed (`cannot read offsets`)."""
    remedy = _REMEDIES.get(error.code())
    text = error.str().strip().rstrip(".")
    return BusError(f"Kafka at {servers}: {doing}: {text} ({error.name()})." + (f" {remedy}." if remedy else ""))


class BrokerQueries:
    """Sends requests to the brokers through one client, which threads may share."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.servers = str(settings["bootstrap.servers"])
        self.errors = ClientErrors()
        try:
            self.client = AdminClient({**settings, **QUIET, "error_cb": self.errors})
        except KafkaException as error:
            raise bus_error(self.servers, "cannot open a client", error.args[0]) from None

    def responses(
        self, ask: Callable[[AdminClient], Mapping[Key, Future[Any]]], doing: str, *, partitions_exist: bool = False
    ) -> dict[Key, Any]:
        """Return the response to each request that `ask` sends. Raises BusError unless all arrive in time.

        Requests are repeated while a partition or group moves between brokers and, if `partitions_exist`, while a
        broker does not have the partitions yet.
        """
        transient = _TRANSIENT | _UNKNOWN_PARTITION if partitions_exist else _TRANSIENT
        end = time.monotonic() + RESPONSE_SECONDS
        while True:
            asked = ask(self.client)
            self._wait(asked, doing, end)
            try:
                found = {key: future.result() for key, future in asked.items()}
                _raise_for_transient(found.values(), transient)
                return found
            except KafkaException as error:
                # the pause before the next try; it also collects errors that explain this one
                self.client.poll(_POLL_SECONDS)
                failed = error.args[0]
                if failed.code() not in transient or self.errors.fatal is not None or time.monotonic() > end:
                    raise bus_error(self.servers, doing, self.errors.instead_of(failed)) from None
                self._refresh_metadata()

    def _refresh_metadata(self) -> None:
        """Refresh the metadata; otherwise the client keeps sending requests to the previous leader."""
        with suppress(KafkaException):
            self.client.list_topics(timeout=RESPONSE_SECONDS)

    def _wait(self, asked: Mapping[Any, Future[Any]], doing: str, end: float) -> None:
        while wait(asked.values(), _POLL_SECONDS).not_done:
            self.client.poll(0)
            if self.errors.fatal is not None:
                raise bus_error(self.servers, doing, self.errors.fatal)
            if time.monotonic() > end:
                error = KafkaError(KafkaError._TIMED_OUT)
                raise bus_error(self.servers, doing, self.errors.instead_of(error))

    def failure(self, doing: str, error: KafkaError) -> BusError:
        """Return the error to raise for a failed part of a response."""
        return bus_error(self.servers, doing, error)


def _raise_for_transient(responses: Iterable[Any], transient: Collection[int]) -> None:
    """Raise KafkaException if a part of a response reports a transient failure.

    While a group is being loaded, or after a truncated response, librdkafka returns an invalid offset without an error.
    This is a transient failure, too.
    """
    for response in responses:
        if getattr(response, "offset", None) == OFFSET_INVALID:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        for part in getattr(response, "topic_partitions", None) or ():
            if part.error is not None and part.error.code() in transient:
                raise KafkaException(part.error)
