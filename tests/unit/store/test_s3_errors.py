"""The servers' own messages are reported in EventBridge's words."""

from __future__ import annotations

import pytest

from eventbridge.clients.s3.errors import arrow_error


@pytest.mark.parametrize(
    ("code", "text", "reported"),
    [
        ("SLOW_DOWN", "Please reduce", "too many requests (SlowDown)"),
        ("UNKNOWN (HTTP status 301)", "", "the bucket is in another region"),
        (
            "UNKNOWN (HTTP status 404)",
            "Unable to parse ExceptionName: XAdminUserNotFound Message: No user exists",  # versitygw's
            "the access key is unknown there",
        ),
        (
            "UNKNOWN (HTTP status 403)",
            "Unable to parse ExceptionName: OfNobodyWeKnow Message: No",
            "access is denied",
        ),
    ],
)
def test_an_error_of_pyarrow_is_identified_by_its_code_or_by_the_name_in_its_text(
    code: str, text: str, reported: str
) -> None:
    """A name that is not known leaves what the status says."""
    said, _ = arrow_error(OSError(f"When writing: AWS Error {code} during PutObject operation: {text}"))

    assert said == reported
