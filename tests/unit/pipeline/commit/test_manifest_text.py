"""Every process writes a manifest as the same bytes: a repeated commit compares them."""

from __future__ import annotations

import json

from eventbridge.pipeline.commit.stage import as_text


def test_a_manifest_is_written_as_earlier_versions_wrote_it() -> None:
    """Sorted keys, one space of indent, ASCII only, nothing on a line of its own in what is empty."""
    manifest = {
        "ranges": [["orders", 0, 0, 2**63], []],
        "files": {"buffer": [], "delivery": ["a/ü.parquet", "\u2028 \U0001f600"]},
        "counts": {"read": 1, "gaps": -2},
        "fingerprints": {"matched": {}, "dead": [{}]},
        "batch_id": "b",
        "parents": None,
        "whole": True,
    }

    assert as_text(manifest) == json.dumps(manifest, indent=1, sort_keys=True).encode()
