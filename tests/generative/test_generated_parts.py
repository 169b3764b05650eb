"""The compiled code finds the value at a path in any JSON text of any event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from generative.event_texts import NAMES, event_texts
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.event.json_document import parse_document, write_document
from eventbridge.matching.scan.parts import MISSING, find_parts, part_paths
from eventbridge.matching.scan.texts import padded_texts
from eventbridge.transform.jsonpath import MISSING as NOTHING
from eventbridge.transform.jsonpath import Path

STEPS = st.sampled_from([*NAMES, "data", 0, 1, -1, -2])
PATHS = st.lists(
    st.lists(STEPS, max_size=4).map(tuple) | st.lists(STEPS, max_size=4).map(lambda steps: ("data", *steps)),
    max_size=8,
    unique=True,
)


def value_of(text: str) -> Any:
    """Return the JSON text of a value as in its document."""
    return write_document(parse_document(f'{{"x":{text}}}')["x"])


@given(st.lists(event_texts(), min_size=1, max_size=3), PATHS)
def test_a_part_is_what_its_path_leads_to(events: list[bytes], paths: list[tuple[str | int, ...]]) -> None:
    """A path's value is found with duplicate or escaped keys, from either end of a list, and with any white space."""
    texts = padded_texts(pa.array(events, pa.binary()))
    rows = np.arange(len(events), dtype=np.int64)[::-1].copy()

    parts = find_parts(texts, rows, part_paths(paths))

    for row, event in enumerate(reversed(events)):
        for part, path in enumerate(paths):
            expected = Path("", path).find(parse_document(event))
            if parts.kind[row, part] == MISSING:
                assert expected is NOTHING
                continue
            begin = parts.position[row, part]
            found = bytes(texts.buffer[begin : begin + parts.length[row, part]]).decode()
            if isinstance(expected, str):
                found = f'"{found}"'
            assert expected is not NOTHING
            assert value_of(found) == write_document(expected)
