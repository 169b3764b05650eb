"""Uploads a file to a bucket: small ones by one request, larger ones in parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from eventbridge.fault_points import reach
from eventbridge.s3.access import S3Clients

#: Larger files go up in parts of 16 MiB: what fails is sent again by the part, and one put holds 5 GB at most.
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
    """Write an object, whole or not at all; raises what boto3 raises.

    `about` is what boto3 is told of it beside the connection's encryption; `condition` stands where the object begins
    to exist.
    """
    view = memoryview(data)
    where = {"Bucket": bucket, "Key": key}
    told = {**about, **clients.access.write_options()}
    if len(view) <= PART_BYTES:
        clients.boto.put_object(**where, Body=bytes(view), **told, **condition)
        return
    begun = {**where, "UploadId": clients.boto.create_multipart_upload(**where, **told)["UploadId"]}
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
