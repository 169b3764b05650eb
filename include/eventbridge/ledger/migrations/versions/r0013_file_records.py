"""What buffer and route record of a file says which record it is."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_ROUTED = ("matched", "failed", "failed_rows", "pieces", "failure_reasons", "error", "survivors", "rows_in")
_MATCHING = ("reference_matched", "reference_rendered", "clears")
_FILES = sa.text(
    "SELECT kind, key, detail FROM batch_file WHERE batch_id = :batch_id AND kind IN ('buffer', 'delivery')"
)
_CHANGE = sa.text("UPDATE batch_file SET detail = :detail WHERE batch_id = :batch_id AND kind = :kind AND key = :key")


def upgrade() -> None:
    """Rewrite them batch by batch; of outcomes, settlements and dead letters nothing is recorded."""
    connection = op.get_bind()
    connection.execute(sa.text("UPDATE batch_file SET detail = 'null' WHERE kind NOT IN ('buffer', 'delivery')"))
    for batch_id in connection.execute(sa.text("SELECT DISTINCT batch_id FROM batch_file")).scalars().all():
        for file in connection.execute(_FILES, {"batch_id": batch_id}).all():
            said = json.dumps(_record(json.loads(file.detail)), separators=(",", ":"))
            connection.execute(_CHANGE, {"batch_id": batch_id, "kind": file.kind, "key": file.key, "detail": said})


def _record(detail: dict[str, Any]) -> dict[str, Any] | None:
    if "start" in detail:
        queue = [detail.pop("topic"), detail.pop("broker"), detail.pop("queue_id")]
        return {"record": "range", "queue": queue, "size": detail.pop("bytes"), **detail}
    if "split" in detail:
        return {"record": "split", "parts": detail["split"]}
    if "unroutable" in detail:
        return {"record": "unroutable", **detail["unroutable"][0]}
    routed = {name: detail[name] for name in _ROUTED if name in detail}
    if "share" in detail:
        return {"record": "share", **routed, **detail["share"]}
    if "slice" in detail:
        # One that counts no `clears` is from before manifests named any of the three.
        matching = {name: detail[name] for name in _MATCHING} if "clears" in detail else {}
        return {"record": "slice", **routed, **matching, **detail["slice"]}
    return None  # what a redrive begins with
