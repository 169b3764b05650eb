"""The last line of a JSON lines file, which a crash may have left unfinished."""

from __future__ import annotations

import os

from eventbridge.targets.lines import is_json

_TAIL_BYTES = 64 * 1024
_FIRST_OF_JSON = frozenset('{["-0123456789tfn')


def repaired(descriptor: int, size: int) -> int:
    """Complete or truncate a last line without line end, and return the new size of the file, which was `size`."""
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    start = _line_start(descriptor, size)
    if _is_torn(os.pread(descriptor, size - start, start)):
        os.ftruncate(descriptor, start)
        return start
    write_all(descriptor, b"\n")
    return size + 1


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, in as many calls as needed."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _line_start(descriptor: int, size: int) -> int:
    position = size
    while position > 0:
        begin = max(0, position - _TAIL_BYTES)
        found = os.pread(descriptor, position - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        position = begin
    return 0


def _is_torn(line: bytes) -> bool:
    """Return whether an unfinished line is the beginning of one of ours; another only gets its line end."""
    if b"\0" in line:  # a power loss left a hole
        return True
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return True
    # a number may be the beginning of a longer one
    return text[:1] in _FIRST_OF_JSON and (text[-1:].isdigit() or not is_json(text))
