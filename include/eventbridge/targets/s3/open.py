"""Opens an S3 target."""

from __future__ import annotations

from eventbridge.clients.s3.access import S3Access
from eventbridge.errors import PackageMissing
from eventbridge.targets.opening import Opening
from eventbridge.targets.s3.fields import S3Fields

try:
    from eventbridge.targets.s3.target import S3Target
except ModuleNotFoundError as error:
    raise PackageMissing.of(error) or error from None


def open_s3(opening: Opening[S3Fields]) -> S3Target:
    """Return an S3 target; raises ConnectionUnusable for its connection, which is read now."""
    target = opening.target
    access = S3Access.from_connection(opening.connections(target.connection))
    return S3Target(access, target, clock=opening.clock)
