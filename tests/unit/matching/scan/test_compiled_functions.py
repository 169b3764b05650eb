"""Functions compiled by Numba: what is kept of them on disk."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventbridge.matching.scan.compiled import sources_stamp
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.strings import has_escape

compiled_function: Any = has_escape

#: A module with a compiled function that takes a record.
_MODULE = """
from typing import NamedTuple

from eventbridge.matching.scan.compiled import compiled


class {name}(NamedTuple):
    size: int


@compiled
def doubled(given):
    return given.size * 2
"""


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


def test_kept_code_that_names_a_class_of_another_version_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba reads the kept index with its classes before it compares stamps: a missing class is no error."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("Before", "Afterwards"):
        (tmp_path / "measured.py").write_text(_MODULE.format(name=name))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "measured", raising=False)
        module = importlib.import_module("measured")

        assert module.doubled(getattr(module, name)(21)) == 42
    monkeypatch.delitem(sys.modules, "measured")
