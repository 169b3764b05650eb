"""Caches the SQL text of statements, which is compiled once per process and not once per opened ledger."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.util import LRUCache

#: The maximum number of cached statements; the ledger has fewer for each kind of database.
_STATEMENTS: Final = 1_000


class CompiledStatements(LRUCache[Any, Any]):
    """The statements that SQLAlchemy has compiled for one kind of database; see its execution option `compiled_cache`.

    SQLAlchemy's keys begin with the dialect of one engine, which this cache omits because all engines of a kind have
    the same settings.
    """

    def __init__(self) -> None:
        super().__init__(_STATEMENTS)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a statement, by its key without the dialect."""
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)
