"""The file target: appends deliveries to a JSON lines file that several processes of one host may share."""

from __future__ import annotations

import fcntl
import itertools
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from eventbridge.errors import InfrastructureError
from eventbridge.fault_points import reach
from eventbridge.model.answer import Answer
from eventbridge.rule.address import path_obstacle
from eventbridge.targets.file.folder_syncs import FOLDER_SYNCS
from eventbridge.targets.lines import is_json, json_line, json_lines
from eventbridge.targets.protocol import Request

#: What is written under one hold of the lock, of requests and of payloads side by side.
_BLOCK_REQUESTS = 256
_BLOCK_PAYLOADS = 2_000
#: How long a block waits for the lock; a holder keeps it for one write.
_LOCK_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.005
_TAIL_BYTES = 64 * 1024
#: A write of so many bytes is handed to the disk at once; to hand over less costs more than `flush` has to wait.
_WRITTEN_AT_ONCE = 256 * 1024
_FIRST_OF_JSON = frozenset('{["-0123456789tfn')


class FileTarget:
    """Appends each payload as one line (`lines.json_line` says how); its folder is made.

    A line that a crash left unfinished is cut off before the next is written: its delivery was never answered
    and comes again. Lines may come twice, but are never torn or mixed.
    Writers lock the file itself. A file that was renamed or removed meanwhile is made again.
    """

    #: To sync, and to write down that it was, takes as long as to write some thousand lines.
    flush_every = 20_000
    more_of_answer = 0

    def __init__(self, path: Path, *, clock: Callable[[], datetime]) -> None:
        # a link leads to the folder that is to be synced; one further up leads there by itself
        self._path = Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()
        self._clock = clock
        self._file: int | None = None
        self._folders_to_sync: set[Path] = set()
        self._lost: str | None = None

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Answer], None, None]:
        """Append every request as `protocol.Target` says; lines count once `flush` has returned."""
        waiting = iter(requests)
        while self._clock() < until:
            block = list(itertools.islice(waiting, _BLOCK_REQUESTS))
            if not block:
                return
            answer = self._answer([request.payload for request in block], until)
            for request in block:
                yield request.index, answer

    def deliver_block(self, payloads: pa.Array, until: datetime) -> Generator[tuple[int, Answer], None, None]:
        """Append every payload as `protocol.BlockTarget` says; lines count once `flush` has returned."""
        for start in range(0, len(payloads), _BLOCK_PAYLOADS):
            if self._clock() >= until:
                return
            block = payloads.slice(start, _BLOCK_PAYLOADS)
            yield start + len(block), self._answer(block, until)

    def flush(self) -> None:
        """Return once all lines answered so far survive a power loss; raises InfrastructureError if they may not."""
        if self._lost is None and self._file is not None:
            self._sync()
        if self._lost is not None:
            error, self._lost = self._lost, None
            raise InfrastructureError(error)

    def check(self) -> str | None:
        """Return why this process cannot write the file; makes neither it nor its folder."""
        if (found := path_obstacle(str(self._path))) is not None:
            return f"{found[0]}. {found[1]}"
        nearest = next(each for each in (self._path, *self._path.parents) if each.exists())
        return None if os.access(nearest, os.W_OK) else f"{str(nearest)!r} may not be written by this user"

    def close(self) -> None:
        """Close the file."""
        self._close_file()

    def _answer(self, payloads: Sequence[bytes] | pa.Array, until: datetime) -> Answer:
        reach("target.send")
        started_at = self._clock()
        patience = min(_LOCK_SECONDS, max(0.0, (until - started_at).total_seconds()))
        lines = json_lines(payloads) if isinstance(payloads, pa.Array) else b"".join(map(json_line, payloads))
        error = self._append(lines, patience)
        duration_ms = (self._clock() - started_at).total_seconds() * 1000
        reach("target.answered")
        kind = None if error is None else "FileError"
        return Answer(error is None, started_at, duration_ms, error_class=kind, error=error)

    def _append(self, lines: bytes | memoryview, patience_seconds: float) -> str | None:
        """Append whole lines or nothing; returns what went wrong."""
        try:
            with self._locked(patience_seconds) as descriptor:
                size = self._repair(descriptor)
                try:
                    _write_all(descriptor, lines)
                except OSError:
                    with suppress(OSError):  # else the next writer repairs it
                        os.ftruncate(descriptor, size)
                    raise
                if len(lines) >= _WRITTEN_AT_ONCE:
                    with suppress(OSError):  # the disk begins at once, and `flush` has less to wait for
                        os.posix_fadvise(descriptor, size, len(lines), os.POSIX_FADV_DONTNEED)
        except OSError as error:
            return f"{error.strerror or error}: {self._path}"
        return None

    @contextmanager
    def _locked(self, patience_seconds: float) -> Iterator[int]:
        """Hold the lock of the file that bears the name now, and give its descriptor."""
        end = time.monotonic() + patience_seconds
        while True:
            descriptor = self._file if self._file is not None else self._open()
            _lock(descriptor, end)
            try:
                if self._bears_the_name(descriptor):
                    yield descriptor
                    return
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._sync()  # lines in the renamed file were answered
            self._close_file()

    def _bears_the_name(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        missing: list[Path] = []
        try:
            descriptor = _opened(self._path)
        except FileNotFoundError:  # a look at every folder takes as long as to write a line: only then
            missing = [folder for folder in self._path.parents if not folder.exists()]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _opened(self._path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "not a regular file")
        self._folders_to_sync.update({self._path.parent, *(folder.parent for folder in missing)})
        self._file = descriptor
        return descriptor

    def _repair(self, descriptor: int) -> int:
        """Finish or cut off a last line without line end; returns the file's size."""
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return size
        start = _line_start(descriptor, size)
        if _is_torn(os.pread(descriptor, size - start, start)):
            os.ftruncate(descriptor, start)
            return start
        _write_all(descriptor, b"\n")
        return size + 1

    def _sync(self) -> None:
        assert self._file is not None
        try:
            os.fsync(self._file)
            for folder in sorted(self._folders_to_sync):
                FOLDER_SYNCS.sync(folder)
        except OSError as error:
            # the kernel reports a failed write once and forgets it: a second fsync would vouch for what is lost
            self._lost = f"Lines of {self._path} may be lost ({error.strerror}). Their deliveries are tried again."
            self._close_file()
        self._folders_to_sync.clear()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> int:
    # for reading too: the tail is looked at, and a named pipe does not wait for its reader
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _lock(descriptor: int, end: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise OSError(error.errno, "its lock is held by another process") from None
            time.sleep(_LOCK_POLL_SECONDS)


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
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
    """Return whether an unfinished line is the beginning of one of ours; what a person wrote only gets its line end."""
    if b"\0" in line:  # a power loss left a hole
        return True
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return True
    # a number may be the beginning of a longer one
    return text[:1] in _FIRST_OF_JSON and (text[-1:].isdigit() or not is_json(text))
