"""Suggests known names for a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventbridge.rules.fields import nearest

_MOST_LISTED = 20


def suggest(what: str, name: str, known: Iterable[str]) -> str:
    """Return `Did you mean x?` for the nearest known name, else the first 20 names after the heading `what`."""
    names = sorted(set(known))
    return nearest(name, names) or f"{what}: {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Return names in one line, at most 20 and how many more there are; `none` for none."""
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return f"{', '.join(names[:_MOST_LISTED]) or 'none'}{more}"
