"""Functions compiled by Numba: what is kept of them on disk."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.scan.compiled import sources_stamp
from eventbridge.scan.memory import address_of
from eventbridge.scan.strings import has_escape

compiled_function: Any = has_escape


def test_kept_code_is_used_only_while_all_compiled_sources_are_the_same() -> None:
    """What Numba keeps is found under the stamp of all sources, and not under another."""
    text = np.zeros(64, np.uint8)
    assert not has_escape(address_of(text), 0, 0)
    kept = compiled_function._cache._cache_file._own

    assert kept._source_stamp == sources_stamp()
    assert kept._load_index()
    kept._source_stamp = "another"
    try:
        assert not kept._load_index()
    finally:
        kept._source_stamp = sources_stamp()
