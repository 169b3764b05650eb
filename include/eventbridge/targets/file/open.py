"""Opens a file target."""

from __future__ import annotations

from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.file.target import FileTarget
from eventbridge.targets.opening import Opening


def open_file(opening: Opening[FileFields]) -> FileTarget:
    """Return a file target; raises UserError for one that cannot be used as it is written."""
    target = opening.target
    if not target.path:
        raise opening.mistake("has no path", "Name a file, best by its absolute path")
    if target.content_mode == "binary":
        what = "has content_mode binary, and a file has no headers"
        raise opening.mistake(what, "Use content_mode structured or data")
    return FileTarget(target.path, clock=opening.clock)
