"""Opens a queue of SQS."""

from __future__ import annotations

from eventbridge.clients.s3.access import S3Access
from eventbridge.errors import ConnectionUnusable, PackageMissing
from eventbridge.sources.opening import Opening
from eventbridge.sources.sqs.fields import SqsFields

try:
    from eventbridge.sources.sqs.queue import SqsQueue
except ModuleNotFoundError as error:
    raise PackageMissing.of(error) or error from None


def open_sqs(opening: Opening[SqsFields]) -> SqsQueue:
    """Open the queue of the source's first topic, without a request to the server yet. Raises ConnectionUnusable.

    Connections have the type `aws`, as for S3.
    """
    source = opening.source
    try:
        access = S3Access.from_connection(opening.connections(source.connection)) if source.connection else S3Access()
    except ConnectionUnusable as error:
        raise ConnectionUnusable(str(error).replace("used for S3", "used for SQS")) from None
    return SqsQueue(access, source.topics[0], source.visibility_timeout)
