"""Suggests an operator for one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from eventbridge.similar_names import similar

_MEANT = {
    "eq": "exactly",
    "equal": "exactly",
    "equals": "exactly",
    "is": "exactly",
    "starts-with": "prefix",
    "startswith": "prefix",
    "begins-with": "prefix",
    "ends-with": "suffix",
    "endswith": "suffix",
    "ignore-case": "equals-ignore-case",
    "iequals": "equals-ignore-case",
    "like": "wildcard",
    "glob": "wildcard",
    "shellstyle": "wildcard",
    "includes": "contains",
    "has": "contains",
    "substring": "contains",
    "match": "regex",
    "matches": "regex",
    "regexp": "regex",
    "not": "anything-but",
    "ne": "anything-but",
    "not-in": "anything-but",
    "none-of": "anything-but",
    "gt": "numeric",
    "gte": "numeric",
    "ge": "numeric",
    "lt": "numeric",
    "lte": "numeric",
    "le": "numeric",
    "between": "numeric",
    "range": "numeric",
    "=": "numeric",
    "==": "numeric",
    "!=": "numeric",
    "<": "numeric",
    "<=": "numeric",
    ">": "numeric",
    ">=": "numeric",
    "exist": "exists",
    "present": "exists",
    "ip": "cidr",
    "ip-address": "cidr",
    "ip-address-in-range": "cidr",
    "subnet": "cidr",
    "and": "all",
    "all-of": "all",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known operator that `word` most likely stands for, by meaning first and then by spelling."""
    names = list(known)
    spelled = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in word).strip("-")
    spelled = spelled.replace("_", "-").replace(" ", "-")
    for candidate in (word.lower(), spelled):
        if _MEANT.get(candidate, candidate) in names:
            return _MEANT.get(candidate, candidate)
    return next(iter(similar(spelled, names)), None)
