"""Reads a queue of SQS with long polling, in batches of ten; the message group of a FIFO queue is the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import boto3
import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from eventbridge import fault_points
from eventbridge.clients.s3.access import S3Access
from eventbridge.errors import BusError, ConnectionUnusable
from eventbridge.sources.messages import RECEIVED
from eventbridge.sources.open import SourceSetup
from eventbridge.sources.sqs.fields import SqsFields

#: The maximum number of messages per request of SQS.
_AT_ONCE: Final = 10
#: A block that has reached this size is returned without a request for more messages.
_BLOCK_BYTES: Final = 4 << 20
#: The time that the first receive waits for messages. Without a wait, SQS would query only some of its servers (short
#: polling).
_POLL_SECONDS: Final = 1
_REGION: Final = "us-east-1"
#: SQS's error codes for an expired receipt.
_EXPIRED_RECEIPT: Final = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")
_REMEDIES: Final = {
    "AWS.SimpleQueueService.NonExistentQueue": "Create the queue, or correct topics in the rule file",
    "QueueDoesNotExist": "Create the queue, or correct topics in the rule file",
    "AccessDenied": "Allow the credentials to receive and delete messages, and to get the queue's URL and attributes",
    "InvalidClientTokenId": "Correct login and password of the connection",
    "SignatureDoesNotMatch": "Correct the password of the connection",
}


class SqsQueue:
    """A queue source that connects on first use. Raises BusError, with a remedy, if SQS fails or rejects a request."""

    kind: Literal["queue"] = "queue"

    def __init__(self, access: S3Access, name: str, visibility_timeout: float) -> None:
        self._name = name
        self._invisible = round(visibility_timeout)
        session = boto3.session.Session(
            aws_access_key_id=access.access_key or None,
            aws_secret_access_key=access.secret_key or None,
            aws_session_token=access.session_token or None,
            region_name=access.region or None,
            profile_name=access.profile or None,
        )
        self._client = session.client(
            "sqs",
            region_name=session.region_name or _REGION,
            endpoint_url=access.endpoint or None,
            config=Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=20),
        )
        self._endpoint = str(self._client.meta.endpoint_url)
        self._url: str | None = None

    @property
    def uri(self) -> str:
        """Return the server's URL and the queue's name."""
        return f"{self._endpoint}/{self._name}"

    @property
    def visibility_timeout(self) -> float:
        """Return the number of seconds for which a received message is invisible to other receivers."""
        return float(self._invisible)

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` messages that SQS delivers now, as one block of `RECEIVED`."""
        fault_points.reach("bus.receive")
        found: list[dict[str, Any]] = []
        with self._doing("receive from"):
            while len(found) < at_most and sum(len(each["Body"]) for each in found) < _BLOCK_BYTES:
                response = self._client.receive_message(
                    QueueUrl=self._queue_url(),
                    MaxNumberOfMessages=min(_AT_ONCE, at_most - len(found)),
                    VisibilityTimeout=self._invisible,
                    WaitTimeSeconds=0 if found else _POLL_SECONDS,
                    MessageSystemAttributeNames=["SentTimestamp", "MessageGroupId"],
                    MessageAttributeNames=["All"],
                )
                if not response.get("Messages"):
                    break
                found += response["Messages"]
            return _block(found)

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages; their receipts stay the same."""
        more = {"VisibilityTimeout": self._invisible}
        with self._doing("extend the visibility timeout of messages of"):
            self._call_in_batches(self._client.change_message_visibility_batch, receipts, more)
        return list(receipts)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Delete messages; expired receipts are ignored."""
        fault_points.reach("bus.acknowledge")
        with self._doing("delete messages of"):
            self._call_in_batches(self._client.delete_message_batch, receipts, {})
        fault_points.reach("bus.acknowledge.done")

    def waiting(self) -> int:
        """Return the approximate number of waiting messages, without those in flight."""
        names = ["ApproximateNumberOfMessages"]
        with self._doing("count the messages in"):
            found = self._client.get_queue_attributes(QueueUrl=self._queue_url(), AttributeNames=names)
            return int(found["Attributes"][names[0]])

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _queue_url(self) -> str:
        if self._url is None:
            self._url = str(self._client.get_queue_url(QueueName=self._name)["QueueUrl"])
        return self._url

    def _call_in_batches(
        self, call: Callable[..., Mapping[str, Any]], receipts: Sequence[str], more: Mapping[str, object]
    ) -> None:
        for first in range(0, len(receipts), _AT_ONCE):
            some = receipts[first : first + _AT_ONCE]
            entries = [{"Id": str(number), "ReceiptHandle": receipt, **more} for number, receipt in enumerate(some)]
            response = call(QueueUrl=self._queue_url(), Entries=entries)
            for failed in response.get("Failed", ()):
                if failed["Code"].rpartition(".")[2] not in _EXPIRED_RECEIPT:
                    details = failed.get("Message", "")
                    raise BusError(
                        f"SQS at {self._endpoint}: a request for a message of {self._name!r} failed: "
                        f"{failed['Code']} {details}"
                    )

    @contextmanager
    def _doing(self, action: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            details = error.response.get("Error", {})
            remedy = _REMEDIES.get(details.get("Code", ""), "")
            raise BusError(
                f"SQS at {self._endpoint}: cannot {action} the queue {self._name!r}: "
                + f"{details.get('Code')}: {details.get('Message')}. "
                + (f"{remedy}." if remedy else "")
            ) from None
        except NoCredentialsError:
            raise BusError(
                f"SQS at {self._endpoint}: there are no credentials. Name a connection of type aws in the bus's source"
            ) from None
        except BotoCoreError as error:
            raise BusError(
                f"SQS at {self._endpoint}: cannot {action} the queue {self._name!r}: {error}. "
                "Correct endpoint_url and region_name in the connection's extra, or wait until it responds"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise BusError(
                f"SQS at {self._endpoint}: cannot {action} the queue {self._name!r}: the response was cut short, or "
                f"is not from SQS ({error}). Correct endpoint_url in the connection's extra, or wait until it responds"
            ) from None


def _block(messages: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    groups = [each.get("Attributes", {}).get("MessageGroupId") for each in messages]
    columns: list[list[object]] = [
        [each["ReceiptHandle"] for each in messages],
        [each["MessageId"] for each in messages],
        [int(each["Attributes"]["SentTimestamp"]) * 1_000 for each in messages],
        [None if group is None else group.encode() for group in groups],
        [_headers(each.get("MessageAttributes", {})) or None for each in messages],
        [each["Body"].encode("utf-8", "surrogatepass") for each in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECEIVED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECEIVED)


def _headers(attributes: Mapping[str, Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return message attributes as headers; `ce-type` and `ce_type` both become `ce_type`, as in binary mode."""
    return [
        {
            "name": _header(name),
            "value": given["BinaryValue"] if "BinaryValue" in given else given.get("StringValue", "").encode(),
        }
        for name, given in attributes.items()
    ]


def _header(name: str) -> str:
    if name.lower() == "content-type":
        return "content-type"
    return f"ce_{name[3:]}" if name.startswith(("ce-", "ce_")) else name


def open_sqs(opening: SourceSetup[SqsFields]) -> SqsQueue:
    """Open the queue of the source's first topic, without sending a request to the server. Raises ConnectionUnusable.

    Connections have the type `aws`, as for S3.
    """
    source = opening.source
    try:
        access = S3Access.from_connection(opening.connections(source.connection)) if source.connection else S3Access()
    except ConnectionUnusable as error:
        raise ConnectionUnusable(str(error).replace("used for S3", "used for SQS")) from None
    return SqsQueue(access, source.topics[0], source.visibility_timeout)
