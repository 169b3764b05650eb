"""Allocates memory next to forbidden pages, so that reading one byte too far ends the process with a signal."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import event_tables, matcher, program, tables
from eventbridge.matching.scan.leaves import Leaves
from eventbridge.matching.scan.memory import PADDING, address_of
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.tree import PathTree, Step

_PAGE: Final = mmap.PAGESIZE
_FORBIDDEN: Final = 0  # PROT_NONE
# The scanner writes these arrays through another reference, so a copy would be stale.
_SHARED: Final = (event_tables.LEAF_ARRAY, event_tables.LEAF_ELEMENT)

Guard: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(size: int) -> npt.NDArray[np.uint8]:
    """Return writable pages for at least `size` bytes with a forbidden page before and after them."""
    pages = max(1, -(-size // _PAGE))
    whole = np.frombuffer(mmap.mmap(-1, (pages + 2) * _PAGE), np.uint8)
    for page in (0, pages + 1):
        if _libc.mprotect(whole.ctypes.data + page * _PAGE, _PAGE, _FORBIDDEN):
            raise OSError(ctypes.get_errno(), "mprotect")
    return whole[_PAGE : (pages + 1) * _PAGE]


class GuardedText:
    """Places texts so that the byte after their padding is forbidden."""

    def __init__(self, room: int) -> None:
        self._memory = guarded(room + PADDING)

    @property
    def size(self) -> int:
        """The bytes that a matcher would have to release, which are none."""
        return 0

    def texts(self, contents: list[bytes], behind: int = 0) -> Texts:
        """Return consecutive texts, followed by `PADDING` bytes `behind`; earlier texts are freed."""
        ends = np.cumsum([len(content) for content in contents], dtype=np.int64)
        buffer = self._memory[len(self._memory) - PADDING - int(ends[-1]) :]
        buffer[:-PADDING] = np.frombuffer(b"".join(contents), np.uint8)
        buffer[-PADDING:] = behind
        return Texts(buffer, np.concatenate([np.zeros(1, np.int64), ends[:-1]]), ends)

    def take(self, texts: Texts, first: int, last: int) -> Texts:
        """Return a block of texts, as a matcher's `TextBuffer` does."""
        spans = zip(texts.start[first:last], texts.end[first:last], strict=True)
        return self.texts([texts.buffer[start:end].tobytes() for start, end in spans])


class TablesAtTheEnd(tables.Tables):
    """Tables that each end before a forbidden page."""

    def put(self, name: int, array: npt.NDArray[Any]) -> None:
        """Keep a copy of an array before a forbidden page."""
        super().put(name, before_guard(array))


class TablesAtTheBeginning(tables.Tables):
    """Tables that each begin after a forbidden page."""

    def put(self, name: int, array: npt.NDArray[Any]) -> None:
        """Keep a copy of an array after a forbidden page."""
        super().put(name, behind_guard(array))


class _GuardedEventTables(event_tables.EventTables):
    guarded: Guard

    def _put(self, name: int, array: npt.NDArray[Any]) -> None:
        super()._put(name, array if name in _SHARED else type(self).guarded(array))

    def _make_text_room(self, size: int) -> None:
        super()._make_text_room(size)
        self._plain, self._folded = type(self).guarded(self._plain), type(self).guarded(self._folded)
        self.plain, self.folded = address_of(self._plain), address_of(self._folded)


class _GuardedRooms(event_tables.BlockBuffers):
    guarded: Guard

    def _make(self) -> None:
        super()._make()
        guarded = type(self).guarded
        self.leaves = Leaves(*map(guarded, self.leaves))
        self.rules, self.handed = guarded(self.rules), guarded(self.handed)


def guard_all(where: str) -> None:
    """Place all later matchers of this process before (`end`) or after (`beginning`) forbidden pages."""
    guarded = before_guard if where == "end" else behind_guard
    _GuardedEventTables.guarded = _GuardedRooms.guarded = staticmethod(guarded)  # type: ignore[assignment]
    tables.Tables = TablesAtTheEnd if where == "end" else TablesAtTheBeginning  # type: ignore[misc]
    matcher.EventTables = _GuardedEventTables  # type: ignore[misc]
    matcher.BlockBuffers = _GuardedRooms  # type: ignore[misc]
    tree_of_paths = matcher.path_tree

    def guarded_tree(paths: Sequence[Sequence[Step]]) -> PathTree:
        return PathTree(*map(guarded, tree_of_paths(paths)))

    matcher.path_tree = guarded_tree
    program.CLASS_BYTES = 1 << 20  # type: ignore[misc]


def before_guard(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array that ends at a forbidden page."""
    memory = guarded(array.nbytes)
    return _filled(memory[len(memory) - array.nbytes :], array)


def behind_guard(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array that begins after a forbidden page."""
    return _filled(guarded(array.nbytes)[: array.nbytes], array)


def _filled(page: npt.NDArray[np.uint8], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = page.view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy
