"""The file target's lines: one for each payload, and what becomes of a torn one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from unit.targets.file_delivery import deliver, location, now, written

from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.lines import json_line, json_lines


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (b'{"a": 1.10,  "b":"\xc3\xbc"}', b'{"a": 1.10,  "b":"\xc3\xbc"}\n'),
        (b'{\n  "a": [\r\n1]\n}\n', b'{   "a": [  1] } \n'),
        (b"[1,2]", b"[1,2]\n"),
        (b'"text"', b'"text"\n'),
        (b"null", b"null\n"),
        (b"1" * 5000, b"1" * 5000 + b"\n"),
        (b"1e999999999", b"1e999999999\n"),
        (b"Order 17 shipped", b'"Order 17 shipped"\n'),
        (b"two\nlines", b'"two\\nlines"\n'),
        (b'{"a": NaN}', b'"{\\"a\\": NaN}"\n'),
        (b"{} {}", b'"{} {}"\n'),
        (b"", b'""\n'),
        ("Zoë".encode(), '"Zoë"\n'.encode()),
        (b"\xff\xfe", b'{"data_base64":"//4="}\n'),
        (b"[" * 100_000, b'"' + b"[" * 100_000 + b'"\n'),
    ],
)
def test_one_payload_is_one_line(payload: bytes, line: bytes) -> None:
    """JSON stays as it is on one line; text becomes a JSON string, other bytes base64."""
    assert json_line(payload) == line
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    "payloads",
    [
        [b'{"n":1}', b"2", b'"\xc3\xbc"'],
        [b"{}", b"1 2", b"{}"],
        [b"[1,", b"2]", b"3 4"],
        [b'{"n":\n1}', b'{"n":2}'],
        [b"{}", b'"\xff"'],
        [b"{}", None, b""],
        [b"{}", b'"\\ud800"', b"NaN"],
        [],
    ],
)
def test_a_block_becomes_the_lines_of_its_payloads(payloads: list[bytes | None]) -> None:
    """Also where one of them is not JSON, or has line breaks, or two would make a value together; null is not bytes."""
    array = pa.array([b"x", *payloads, b"\n"], pa.binary()).slice(1, len(payloads))

    assert bytes(json_lines(array)) == b"".join(json_line(payload or b"") for payload in payloads)


def test_a_line_that_a_crash_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    """Its delivery never got a response: it comes again, whole."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2,"text":"ab')

    assert written(path, b'{"n":2,"text":"abc"}') == b'{"n":1}\n{"n":2,"text":"abc"}\n'


def test_an_unfinished_line_of_any_length_is_cut_off(tmp_path: Path) -> None:
    """The only line, and one longer than what is read at a time."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'"' + b"x" * 200_000)
    assert written(path, b"1") == b"1\n"

    path.write_bytes(b'"first"\n"' + b"x" * 200_000)
    assert written(path, b"1") == b'"first"\n1\n'


@pytest.mark.parametrize("tail", [b"12", b'{"a":1', b"tru", b"\x00\x00\x00", b'"\xc3', b"[1,2", b'"a', b"-"])
def test_a_possible_partial_line_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    """A number may be the beginning of a longer one; zeros are what a power loss leaves."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"0\n" + tail)

    assert written(path, b"1") == b"0\n1\n"


@pytest.mark.parametrize("tail", [b'{"a":1}', b'"a"', b"true", b"[]", b"written by hand", "Zoë".encode()])
def test_a_whole_or_foreign_line_only_gets_its_line_end(tmp_path: Path, tail: bytes) -> None:
    """Nothing that a person wrote is thrown away because a line end is missing."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"0\n" + tail)

    assert written(path, b"1") == b"0\n" + tail + b"\n1\n"


def test_a_tail_is_repaired_also_while_the_file_is_open(tmp_path: Path) -> None:
    """Another writer may die at any time: every block looks at the tail."""
    path = tmp_path / "out.jsonl"
    with closing(FileTarget(location(path), clock=now)) as target:
        deliver(target, b"1")
        with path.open("ab") as other:
            other.write(b'{"torn')
        deliver(target, b"2")

    assert path.read_bytes() == b"1\n2\n"
