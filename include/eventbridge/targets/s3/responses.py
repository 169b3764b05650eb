"""Converts S3's errors for an upload to a response, permanent or transient."""

from __future__ import annotations

from typing import Final, NamedTuple

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

from eventbridge.clients.s3.errors import what_it_is

#: Transient errors with a status that looks permanent: a truncated upload, a token that will be renewed, a multipart
#: upload that a lifecycle rule or a restart of the server removed.
_PASSING: Final = frozenset(
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
    """Why an upload failed: an HTTP status if that decides, else an error class."""

    code: int | None
    error_class: str | None
    text: str


def refusal(error: ClientError | BotoCoreError) -> Refusal:
    """Return why a request to S3 failed."""
    if not isinstance(error, ClientError):
        return Refusal(None, _class_of(error), f"{type(error).__name__}: {error}")
    said = error.response.get("Error", {})
    code = str(said.get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = what_it_is(code, str(said.get("Message", "")))
    text = f"{code}: {text}. {_REMEDIES[code]}" if code in _REMEDIES else f"{code}: {text}"
    if code in _PASSING:
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
