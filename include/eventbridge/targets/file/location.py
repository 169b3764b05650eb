"""Locates the file of a file target, which must be a regular file in an allowed folder, not hidden or behind links."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from eventbridge.config.target_locations import TargetLocations

SETTING: Final = "EVENTBRIDGE_FILE_TARGET_FOLDERS"

#: Folders and files are readable by the group, never by others.
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
#: The file is opened with read access, because its end is checked. Opening a named pipe, a device or a terminal does
#: not block and has no effect; it is refused afterwards.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PathRefused(OSError):
    """Raised for a path that a file target must not write to, with the reason (`what`) and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(0, f"{problem}. {remedy}")
        self.what = problem
        self.remedy = remedy


@dataclass(frozen=True)
class FileLocation:
    """A file in an allowed folder: the folder, whose own path may contain links, and the names that lead from it."""

    root: str
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the path for the operating system."""
        return os.path.join(self.root, *self.names)  # noqa: PTH118  # creating a Path takes as long as opening the file

    def open(self) -> tuple[int, list[str]]:
        """Open the file, creating it if missing, and return its descriptor and the folders that were created for it.

        Each name is opened relative to its folder, so that no link is followed, not even one that is created during the
        call. Raises OSError, which is PathRefused for a link, and for a file that is not regular or has a second hard
        link.
        """
        made = [str(each) for each in _make_root(Path(self.root))]
        folder = os.open(self.root, _FOLDER)
        try:
            for number, name in enumerate(self.names[:-1], 1):
                below, is_new = self._open_below(folder, name, number)
                os.close(folder)
                folder = below
                if is_new:
                    made.append(self._path_to(number))
            return self._open_file(folder), made
        finally:
            os.close(folder)

    def check(self) -> None:
        """Raise PathRefused if a name inside the allowed folder is a symbolic link, or the file has two hard links."""
        for number in range(1, len(self.names) + 1):
            if _is_link(path := self._path_to(number)):
                raise _link_refused(path)
        try:
            found = os.lstat(self.path)
        except OSError:  # `open` creates it
            return
        if stat.S_ISREG(found.st_mode):  # `path_obstacle` reports other kinds of files
            _refuse_shared(self.path, found)

    def _open_file(self, folder: int) -> int:
        try:
            descriptor = os.open(self.names[-1], _FLAGS, _FILE_MODE, dir_fd=folder)
        except OSError as error:
            raise self._describe_error(error, len(self.names)) from None
        try:
            _refuse_shared(self.path, os.fstat(descriptor))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _path_to(self, number: int) -> str:
        return os.path.join(self.root, *self.names[:number])  # noqa: PTH118

    def _open_below(self, folder: int, name: str, number: int) -> tuple[int, bool]:
        is_new = False
        try:
            try:
                return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder), is_new
            except FileNotFoundError:
                try:
                    os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
                    is_new = True
                except FileExistsError:  # another target created it
                    pass
                return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder), is_new
        except OSError as error:
            raise self._describe_error(error, number) from None

    def _describe_error(self, error: OSError, number: int) -> OSError:
        """Return PathRefused if the error is due to a link, else the error itself."""
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(self._path_to(number)):
            return _link_refused(self._path_to(number))
        return error


def location_of(path: str, locations: TargetLocations) -> FileLocation:
    """Return the location of a path in a rule file; a relative one is in the first folder. Raises PathRefused."""
    written, folders = PurePosixPath(path), locations.file_folders
    if not folders:
        raise PathRefused("no folder is allowed for file targets", f"List the allowed folders in {SETTING}")
    root, names = folders[0], written.parts
    if written.is_absolute():
        around = next((each for each in folders if written.is_relative_to(each)), None)
        if around is None:
            raise PathRefused(
                f"{path!r} is not below any of the folders for file targets",
                f"Name a path relative to the first of them, or add its folder to {SETTING}",
            )
        root, names = around, written.relative_to(around).parts
    if not names:
        raise PathRefused(f"{path!r} is a folder", "Name a file in it")
    if ".." in names:
        raise PathRefused(f"{path!r} contains '..'", "Write the path without it")
    hidden = next((name for name in names if name.startswith(".")), None)
    if hidden is not None:
        raise PathRefused(f"{path!r} contains {hidden!r}, but file targets write no hidden files", "Name another file")
    if locations.owns_file(str(root), names):
        raise PathRefused(f"{path!r} is where EventBridge keeps its own data or rule files", "Name another folder")
    return FileLocation(str(root), names)


def _link_refused(path: str) -> PathRefused:
    return PathRefused(f"{path!r} is a link, but file targets follow no links", "Name the link's target")


def _refuse_shared(path: str, status: os.stat_result) -> None:
    """Raise PathRefused for a file that is not regular, or that a second hard link may expose elsewhere."""
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{path!r} is not a regular file", "Name another file, or remove it")
    if status.st_nlink > 1:
        what = f"{path!r} is one of {status.st_nlink} hard links to a file, and another may be in another folder"
        raise PathRefused(what, "Replace it with a copy, or remove the other links")


def _make_root(root: Path) -> list[Path]:
    missing = [each for each in (root, *root.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(_FOLDER_MODE, exist_ok=True)
    return missing


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False
