"""Uploads an object to a bucket, with one request or, if it is larger, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from eventbridge.clients.s3.access import S3Clients
from eventbridge.fault_points import reach

#: Larger objects are uploaded in parts of this size, because a failure repeats only one part and a put is limited to 5
#: GB.
PART_BYTES: Final = 16 << 20
_NO_CONDITION: Final[Mapping[str, str]] = {}


def upload(
    clients: S3Clients,
    bucket: str,
    key: str,
    data: bytes | memoryview | pa.Buffer,
    about: Mapping[str, Any],
    condition: Mapping[str, str] = _NO_CONDITION,
) -> None:
    """Write an object atomically. Raises boto3's errors.

    `about` are further parameters for boto3; `condition` is sent with the request that creates the object.
    """
    view = memoryview(data)
    where = {"Bucket": bucket, "Key": key}
    options = {**about, **clients.access.write_options()}
    if len(view) <= PART_BYTES:
        clients.boto.put_object(**where, Body=bytes(view), **options, **condition)
        return
    begun = {**where, "UploadId": clients.boto.create_multipart_upload(**where, **options)["UploadId"]}
    try:
        parts = []
        for number, start in enumerate(range(0, len(view), PART_BYTES), 1):
            reach("store.part")
            body = bytes(view[start : start + PART_BYTES])
            sent = clients.boto.upload_part(**begun, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        clients.boto.complete_multipart_upload(**begun, MultipartUpload={"Parts": parts}, **condition)
    except BaseException:
        with suppress(Exception):
            clients.boto.abort_multipart_upload(**begun)
        raise
