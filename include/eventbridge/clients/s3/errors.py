"""Converts errors of S3 and the network to StoreError, with bucket, key, cause and remedy in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from eventbridge.errors import StoreError

#: pyarrow's prefix of S3's message, e.g. `AWS Error SLOW_DOWN during UploadPart operation: Please ...`.
_ARROW = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during \w+ operation: ?(.*)", re.DOTALL)

#: The error code in pyarrow's message, for codes that pyarrow reports as UNKNOWN.
_NAMED = re.compile(r"ExceptionName: (\w+)")

#: The error to raise for a response with a truncated head, which pyarrow mistakes for an empty file.
CUT_SHORT = "AWS Error NETWORK_CONNECTION during HeadObject operation: the response was cut short"

#: Transient errors, as pyarrow spells them. It also reports INTERNAL_FAILURE for a response that it cannot parse.
_TRANSIENT = {
    "INTERNAL_FAILURE",
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
}

_CREDENTIALS = "Correct the access key and the secret key (login and password) of the store's connection."
_RIGHTS = "Give this user s3:ListBucket on the bucket and s3:GetObject, s3:PutObject, s3:DeleteObject on its files."
_REGION = "Set region_name in the extra of the store's connection to the bucket's region."
_LATER = "It was tried several times; try again later."
_DOWN = "Start it, or correct endpoint_url in the extra of the store's connection, and try again."

#: Cause and remedy by code, in lower case without underscores, because boto3 and pyarrow spell codes differently.
_KNOWN = {
    "nosuchbucket": ("the bucket does not exist", "Create it, or name another in EVENTBRIDGE_STORE_URI."),
    "invalidaccesskeyid": ("the access key is unknown there", _CREDENTIALS),
    "xadminusernotfound": ("the access key is unknown there", _CREDENTIALS),  # versitygw's own code
    "signaturedoesnotmatch": ("the secret key does not match the access key", _CREDENTIALS),
    "expiredtoken": ("the session token has expired", "Renew the credentials of the store's connection."),
    "invalidtoken": ("the session token is not valid", "Renew the credentials of the store's connection."),
    "accessdenied": ("access is denied", _RIGHTS),
    "forbidden": ("access is denied", _RIGHTS),
    "403": ("access is denied", _RIGHTS),
    "authorizationheadermalformed": ("the bucket is in another region", _REGION),
    "permanentredirect": ("the bucket is in another region", _REGION),
    "301": ("the bucket is in another region", _REGION),
    "requesttimetooskewed": ("the clock of this machine is wrong", "Correct it."),
    "slowdown": ("too many requests (SlowDown)", _LATER),
    "internalerror": ("an internal error of the server", _LATER),
    "internalfailure": ("an internal error of the server", _LATER),
    "serviceunavailable": ("the service is not available", _LATER),
    "500": ("an internal error of the server", _LATER),
    "503": ("the service is not available", _LATER),
    "networkconnection": ("the server cannot be reached", _DOWN),
}


@contextmanager
def s3_errors(verb: str, path: str, bucket: str, endpoint: str) -> Iterator[None]:
    """Convert errors of boto3 and pyarrow to StoreError; `verb` and `path` name the failed operation."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        NoCredentialsError,
        ProfileNotFound,
    )

    def store_error(problem: str, remedy: str) -> StoreError:
        return StoreError(f"Cannot {verb} {path!r} in the bucket {bucket!r} at {endpoint}: {problem}. {remedy}")

    try:
        yield
    except ClientError as error:
        response = error.response.get("Error", {})
        raise store_error(*_describe(str(response.get("Code", "")), str(response.get("Message", "")))) from error
    except NoCredentialsError as error:
        remedy = (
            "Name a connection in EVENTBRIDGE_STORE_URI, s3://<connection>@<bucket>/..., or set AWS's own variables."
        )
        raise store_error("there are no credentials", remedy) from error
    except ProfileNotFound as error:
        raise store_error(str(error), "Correct profile_name in the extra of the store's connection.") from error
    except (ConnectionError, HTTPClientError) as error:  # no connection, a timeout, or a broken connection
        raise store_error(f"the server cannot be reached ({type(error).__name__})", _DOWN) from error
    except BotoCoreError as error:
        raise store_error(str(error), "Correct the store's connection.") from error
    except OSError as error:
        raise store_error(*arrow_error(error)) from error


def arrow_error(error: OSError) -> tuple[str, str]:
    """Return cause and remedy of an error of pyarrow's S3 file system."""
    found = _ARROW.search(str(error))
    if found is None:
        return str(error), "Try again."
    code = found[2] if found[1] == "UNKNOWN" and found[2] else found[1]
    named = _NAMED.search(found[3]) if found[1] == "UNKNOWN" else None
    return _describe(named[1] if named and named[1].lower() in _KNOWN else code, found[3])


def what_it_is(code: str, message: str) -> str:
    """Return the cause of an S3 error with this code and message."""
    known = _KNOWN.get(code.lower())
    return known[0] if known is not None else message.strip().rstrip(".")


def is_passing(error: OSError) -> bool:
    """Return whether an error of pyarrow's S3 file system is transient."""
    found = _ARROW.search(str(error))
    return found is not None and (found[1] in _TRANSIENT or (found[2] or "").startswith("5"))


def _describe(code: str, message: str) -> tuple[str, str]:
    known = _KNOWN.get(code.lower().replace("_", ""))
    return known if known is not None else (f"{code}: {message.strip().rstrip('.')}", "Check the server's log.")
