"""Opens a file target."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.file.place import PathRefused, place_of
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.opening import Opening


def open_file(opening: Opening[FileFields]) -> FileTarget:
    """Return a file target; raises UserError for an unusable or forbidden one."""
    target = opening.target
    if not target.path:
        raise opening.error("has no path", "Name a file, preferably by its absolute path")
    if target.content_mode == "binary":
        what = "has content_mode binary, but a file has no headers"
        raise opening.error(what, "Use content_mode structured or data")
    try:
        place = place_of(target.path, opening.file_folders)
    except PathRefused as error:
        raise UserError(f"Target {target.name!r} of rule {opening.rule!r}: {error.strerror}.") from None
    return FileTarget(place, clock=opening.clock)
