"""Implements the S3 target, which writes each span of deliveries as one object that a retry overwrites."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.exceptions import ConnectionError as ConnectionBroken

from eventbridge.clients.s3.access import S3Access, S3Clients
from eventbridge.clients.s3.errors import what_it_is
from eventbridge.clients.s3.upload import upload
from eventbridge.errors import UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.policy.batch_request import batch_request_id
from eventbridge.targets.lines import json_line, json_lines
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import DeliverySpan, Request, SpanResponse
from eventbridge.targets.s3.fields import S3Fields, obstacle_of

#: The maximum number of deliveries that `deliver` writes to one object.
_MAX_TOGETHER: Final = 100
_CONTENT_TYPES: Final = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


class S3Target:
    """Writes objects under a prefix of a bucket, each with one request, or with several if it is larger than a part.

    A key is `<prefix>/date=YYYY-MM-DD/hour=HH/<name>.<format>`, in UTC. An object is written atomically.
    """

    flush_every = 1

    def __init__(self, access: S3Access, rule: S3Fields, *, clock: Callable[[], datetime]) -> None:
        self._access = access
        self._rule = rule
        self._clock = clock
        self._open_clients: S3Clients | None = None
        self.more_of_response = 0

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Write a span as one object, see `protocol.SpanTarget`."""
        if self._clock() >= until:
            return None
        body = self._body(span.delivery_ids, span.payloads)
        return SpanResponse(self._put(_key(self._rule, span.at, span.name), body), {})

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Write every request, up to 100 in one object that is named after all their ids; see `protocol.Target`."""
        waiting = iter(requests)
        while (now := self._clock()) < until:
            group = list(itertools.islice(waiting, _MAX_TOGETHER))
            if not group:
                return
            ids = [request.delivery_id for request in group]
            body = self._body(ids, pa.array([request.payload for request in group], pa.binary()))
            response = self._put(_key(self._rule, now, batch_request_id(ids)), body)
            for left, request in zip(range(len(group) - 1, -1, -1), group, strict=True):
                self.more_of_response = left
                yield request.index, response

    def flush(self) -> None:
        """Return immediately, because an acknowledged object is durable."""

    def check(self) -> str | None:
        """Return why the prefix cannot be listed, or None if it can; writes nothing."""
        try:
            self._clients().boto.list_objects_v2(Bucket=self._rule.bucket, Prefix=_folder(self._rule), MaxKeys=1)
        except (ClientError, BotoCoreError) as error:
            return f"bucket {self._rule.bucket!r} at {self._clients().endpoint}: {refusal(error).text}"
        return None

    def close(self) -> None:
        """Close connections."""
        made, self._open_clients = self._open_clients, None
        if made is not None:
            made.boto.close()

    def _clients(self) -> S3Clients:
        if self._open_clients is None:
            self._open_clients = S3Clients(self._access, attempts=1, read_seconds=self._rule.timeout_seconds)
        return self._open_clients

    def _body(self, ids: Sequence[str] | pa.Array, payloads: pa.Array) -> bytes | memoryview:
        if self._rule.format == "jsonl":
            return json_lines(payloads)
        names = [delivery_id_text(each) for each in ids.to_pylist()] if isinstance(ids, pa.Array) else list(ids)
        texts = [json_line(payload or b"")[:-1].decode() for payload in payloads.to_pylist()]
        table = pa.table({"delivery_id": pa.array(names, pa.string()), "payload": pa.array(texts, pa.string())})
        file = io.BytesIO()
        pq.write_table(table, file, compression="zstd")
        return file.getvalue()

    def _put(self, key: str, body: bytes | memoryview) -> Response:
        reach("target.send")
        started_at = self._clock()
        about = {"ContentType": _CONTENT_TYPES[self._rule.format]}
        failed = None
        try:
            upload(self._clients(), self._rule.bucket, key, body, about)
        except (ClientError, BotoCoreError) as error:
            failed = refusal(error)
        duration_ms = max(0.0, (self._clock() - started_at).total_seconds() * 1_000)
        reach("target.responded")
        if failed is None:
            return Response(True, started_at, duration_ms, code=200)
        return Response(
            False, started_at, duration_ms, code=failed.code, error_class=failed.error_class, error=failed.text
        )


def _folder(rule: S3Fields) -> str:
    return f"{rule.prefix}/" if rule.prefix else ""


def _key(rule: S3Fields, at: datetime, name: str) -> str:
    at = at.astimezone(UTC)
    return f"{_folder(rule)}date={at:%Y-%m-%d}/hour={at:%H}/{name}.{rule.format}"


#: Transient errors with a status that looks permanent, such as a truncated upload, a token that will be renewed, or a
#: multipart upload that a lifecycle rule or a restart of the server removed.
_TRANSIENT: Final = frozenset(
    {
        "BadDigest",
        "ExpiredToken",
        "IncompleteBody",
        "NoSuchUpload",
        "RequestTimeTooSkewed",
        "RequestTimeout",
        "TokenRefreshRequired",
        "XAmzContentSHA256Mismatch",
    }
)

_REMEDIES: Final = {
    "NoSuchBucket": "Create the bucket, or name another in the rule file.",
    "AccessDenied": "Give the connection's user s3:PutObject on the bucket's objects, and s3:ListBucket for the check.",
    "InvalidAccessKeyId": "Correct the login of the connection.",
    "SignatureDoesNotMatch": "Correct the password of the connection.",
    "ExpiredToken": "Renew the credentials of the connection.",
    "PermanentRedirect": "Set region_name in the extra of the connection to the bucket's region.",
    "AuthorizationHeaderMalformed": "Set region_name in the extra of the connection to the bucket's region.",
    "RequestTimeTooSkewed": "Correct the clock of this machine.",
}


class Refusal(NamedTuple):
    """The reason why an upload failed: an HTTP status if that decides the outcome, else an error class."""

    code: int | None
    error_class: str | None
    text: str


def refusal(error: ClientError | BotoCoreError) -> Refusal:
    """Return why a request to S3 failed."""
    if not isinstance(error, ClientError):
        return Refusal(None, _class_of(error), f"{type(error).__name__}: {error}")
    details = error.response.get("Error", {})
    code = str(details.get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = what_it_is(code, str(details.get("Message", "")))
    text = f"{code}: {text}. {_REMEDIES[code]}" if code in _REMEDIES else f"{code}: {text}"
    if code in _TRANSIENT:
        return Refusal(None, code, text)
    return Refusal(status or None, None if status else "S3Error", text)


def _class_of(error: BotoCoreError) -> str:
    if isinstance(error, SSLError):
        return "TlsError"
    if isinstance(error, (ConnectTimeoutError, ReadTimeoutError)):
        return "Timeout"
    if isinstance(error, NoCredentialsError):
        return "NotAuthenticated"
    return "NetworkError" if isinstance(error, (ConnectionBroken, HTTPClientError)) else "S3Error"


def open_s3(opening: TargetSetup[S3Fields]) -> S3Target:
    """Return an S3 target; reads its connection now. Raises UserError for a forbidden prefix or unusable connection."""
    target = opening.target
    if (found := obstacle_of(target, opening.locations)) is not None:
        raise UserError(f"Target {target.name!r} of rule {opening.rule!r}: {found.message}. {found.remedy}.")
    access = S3Access.from_connection(opening.connections(target.connection))
    return S3Target(access, target, clock=opening.clock)
