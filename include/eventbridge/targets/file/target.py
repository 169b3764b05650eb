"""Implements the file target, which appends deliveries to a JSON lines file that processes of one host may share."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from eventbridge.errors import InfrastructureError, UserError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.rules.address import path_obstacle
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.file.location import FileLocation, PathRefused, location_of
from eventbridge.targets.lines import is_json, json_line, json_lines
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request

#: The maximum number of lines that `deliver` and `deliver_block` write per lock of the file.
_BLOCK_REQUESTS = 256
_BLOCK_PAYLOADS = 2_000
#: The maximum time that a write waits for the lock, which another process holds only for one write.
_LOCK_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.005
#: After a write of at least this many bytes, the kernel is asked to write them to disk immediately; after a smaller
#: one, that costs more than it saves in `flush`.
_MIN_WRITEBACK_BYTES = 256 * 1024


class FileTarget:
    """Appends each payload as one line (see `lines.json_line`); creates the file and its folders, and follows no link.

    An incomplete line from a crash is removed before the next is written; its delivery never got a response and is sent
    again. Lines may be duplicated, but are never torn or mixed. Writers lock the file itself. A file that was renamed
    or removed is created again.
    """

    #: A sync, including the recording of the responses that become final, takes as long as writing a few thousand
    #: lines.
    flush_every = 20_000
    more_of_response = 0

    def __init__(self, location: FileLocation, *, clock: Callable[[], datetime]) -> None:
        self._location = location
        self._path = location.path
        self._clock = clock
        self._file: int | None = None
        self._identity = (0, 0)
        self._folders_to_sync: set[str] = set()
        self._lost: str | None = None

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Append every request, see `protocol.Target`; a line is durable once `flush` has returned."""
        waiting = iter(requests)
        while self._clock() < until:
            block = list(itertools.islice(waiting, _BLOCK_REQUESTS))
            if not block:
                return
            response = self._response([request.payload for request in block], until)
            for request in block:
                yield request.index, response

    def deliver_block(
        self, delivery_ids: pa.Array, payloads: pa.Array, until: datetime
    ) -> Generator[tuple[int, Response], None, None]:
        """Append every payload, see `protocol.BlockTarget`; a line is durable once `flush` has returned."""
        for start in range(0, len(payloads), _BLOCK_PAYLOADS):
            if self._clock() >= until:
                return
            block = payloads.slice(start, _BLOCK_PAYLOADS)
            yield start + len(block), self._response(block, until)

    def flush(self) -> None:
        """Return once all lines with a response survive a power loss. Raises InfrastructureError otherwise."""
        lost = self.flush_together([self])[0]
        if lost is not None:
            raise InfrastructureError(lost)

    @property
    def disk(self) -> Hashable | None:
        """Return the file system of the open file; None if no file is open."""
        return ("file", self._identity[0]) if self._file is not None else None

    @staticmethod
    def flush_together(targets: Sequence[FileTarget]) -> list[str | None]:
        """Flush all targets, and return for each why its lines may be lost, or None.

        Writeback of all files starts before the first fsync, so that the file system commits their metadata together.
        """
        waiting = [each for each in targets if each._lost is None and each._file is not None]
        if len(waiting) > 1:
            for target in waiting:
                target._start_writeback()
        for target in waiting:
            target._sync_lines()
        _sync_folders([target for target in waiting if target._lost is None])
        lost = [target._lost for target in targets]
        for target in targets:
            target._lost = None
        return lost

    def check(self) -> str | None:
        """Return why this process cannot write the file, or None if it can; creates neither the file nor its folder."""
        if (found := path_obstacle(self._path)) is not None:
            return f"{found[0]}. {found[1]}"
        try:
            self._location.check()
        except PathRefused as error:
            return error.strerror
        path = Path(self._path)
        nearest = next(each for each in (path, *path.parents) if each.exists())
        if os.access(nearest, os.W_OK):
            return None
        return f"{str(nearest)!r} is not writable by this user. Give the user that runs EventBridge write access to it"

    def close(self) -> None:
        """Close the file."""
        self._close_file()

    def _response(self, payloads: Sequence[bytes] | pa.Array, until: datetime) -> Response:
        reach("target.send")
        started_at = self._clock()
        patience = min(_LOCK_SECONDS, max(0.0, (until - started_at).total_seconds()))
        lines = json_lines(payloads) if isinstance(payloads, pa.Array) else b"".join(map(json_line, payloads))
        error = self._append(lines, patience)
        duration_ms = (self._clock() - started_at).total_seconds() * 1000
        reach("target.responded")
        kind = None if error is None else "FileError"
        return Response(error is None, started_at, duration_ms, error_class=kind, error=error)

    def _append(self, lines: bytes | memoryview, patience_seconds: float) -> str | None:
        """Append all of the lines or none of them; return the error, if any."""
        try:
            descriptor, size = self._lock(patience_seconds)
            try:
                size = repaired(descriptor, size)
                self._write(descriptor, size, lines)
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError as error:
            return f"{error.strerror or error}: {self._path}"
        return None

    def _write(self, descriptor: int, size: int, lines: bytes | memoryview) -> None:
        try:
            write_all(descriptor, lines)
        except OSError:
            with suppress(OSError):  # if this fails, the next writer repairs the file
                os.ftruncate(descriptor, size)
            raise
        if len(lines) >= _MIN_WRITEBACK_BYTES:
            with suppress(OSError):  # the kernel begins to write, so that `flush` waits less
                os.posix_fadvise(descriptor, size, len(lines), os.POSIX_FADV_DONTNEED)

    def _lock(self, patience_seconds: float) -> tuple[int, int]:
        """Lock the file that the path names now, and return its descriptor and size; the caller unlocks it."""
        end = time.monotonic() + patience_seconds
        while True:
            descriptor = self._file if self._file is not None else self._open()
            _lock(descriptor, end)
            size = None
            try:
                size = self._size_by_name()
            finally:
                if size is None:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            if size is not None:
                return descriptor, size
            self._sync()  # lines in the renamed or removed file already have responses
            self._close_file()

    def _size_by_name(self) -> int | None:
        """Return the size of the open file, or None if the path no longer names it."""
        try:
            found = os.stat(self._path)  # noqa: PTH116
        except FileNotFoundError:
            return None
        return found.st_size if (found.st_dev, found.st_ino) == self._identity else None

    def _open(self) -> int:
        descriptor, made = self._location.open()
        found = os.fstat(descriptor)
        self._identity = (found.st_dev, found.st_ino)
        self._folders_to_sync.add(self._path.rpartition("/")[0] or "/")
        self._folders_to_sync.update(folder.rpartition("/")[0] or "/" for folder in made)
        self._file = descriptor
        return descriptor

    def _start_writeback(self) -> None:
        assert self._file is not None
        with suppress(OSError):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def _sync(self) -> None:
        self._sync_lines()
        if self._lost is None:
            _sync_folders([self])

    def _sync_lines(self) -> None:
        assert self._file is not None
        try:
            os.fsync(self._file)
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        # the kernel reports a failed write only once; a second fsync would report success for lost data
        self._lost = f"Lines of {self._path} may be lost ({error.strerror}). Their deliveries are retried."
        self._close_file()
        self._folders_to_sync.clear()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _sync_folders(targets: Sequence[FileTarget]) -> None:
    """Sync the folders in which the targets created files or folders, each once."""
    asked: dict[str, list[FileTarget]] = {}
    for target in targets:
        for folder in target._folders_to_sync:
            asked.setdefault(folder, []).append(target)
        target._folders_to_sync = set()
    for folder in sorted(asked):
        try:
            FOLDER_SYNCS.sync(Path(folder))
        except OSError as error:
            for target in asked[folder]:
                target._lose(error)


def _lock(descriptor: int, end: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise OSError(error.errno, "another process holds the lock of the file") from None
            time.sleep(_LOCK_POLL_SECONDS)


_TAIL_BYTES = 64 * 1024
_FIRST_OF_JSON = frozenset('{["-0123456789tfn')


def repaired(descriptor: int, size: int) -> int:
    """Complete or remove a last line that has no line end, and return the file's new size; `size` is the old one."""
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
    """Return whether a line without a line end is only a part of a line; a complete one only needs its line end."""
    if b"\0" in line:  # a power loss left a hole
        return True
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return True
    # a number may be the beginning of a longer one
    return text[:1] in _FIRST_OF_JSON and (text[-1:].isdigit() or not is_json(text))


@dataclass(eq=False)
class _Folder:
    turn: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0
    synced: int = 0
    #: Ranges of requests whose sync failed. The kernel reports a failure once, so all of them must get the error.
    failed: list[tuple[int, int, OSError]] = field(default_factory=list)


class FolderSyncs:
    """Combines the syncs of a folder that threads request, because a push to 10,000 new files requests 10,000 syncs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._folders: dict[Path, _Folder] = {}

    def sync(self, folder: Path) -> None:
        """Return once every current entry of the folder is on disk. Raises OSError if one may not be."""
        with self._guard:
            state = self._folders.setdefault(folder, _Folder())
            state.asked += 1
            number = state.asked
        with state.turn:
            if state.synced < number:
                self._sync(folder, state)
            error = next((error for first, last, error in state.failed if first <= number <= last), None)
        if error is not None:
            raise error

    def _sync(self, folder: Path, state: _Folder) -> None:
        with self._guard:
            first, last = state.synced + 1, state.asked
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            state.failed.append((first, last, error))
        state.synced = last


FOLDER_SYNCS = FolderSyncs()


def open_file(opening: TargetSetup[FileFields]) -> FileTarget:
    """Return a file target. Raises UserError for an unusable or forbidden one."""
    target = opening.target
    if not target.path:
        raise opening.error("has no path", "Name a file, preferably by its absolute path")
    if target.content_mode == "binary":
        what = "has content_mode binary, but a file has no headers"
        raise opening.error(what, "Use content_mode structured or data")
    try:
        location = location_of(target.path, opening.locations)
    except PathRefused as error:
        raise UserError(f"Target {target.name!r} of rule {opening.rule!r}: {error.strerror}.") from None
    return FileTarget(location, clock=opening.clock)
