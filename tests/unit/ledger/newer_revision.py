"""A migration after the newest one, so that a ledger of today is an older ledger."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eventbridge.ledger import revision

_NEXT = f"{int(revision.HEAD) + 1:04}"
_SOURCE = f'''
import sqlalchemy as sa
from alembic import op

revision = "{_NEXT}"
down_revision = "{revision.HEAD}"


def upgrade() -> None:
    op.add_column("batch", sa.Column("newer", sa.Text(), nullable=False, server_default=""))
'''


def add_revision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the ledger know one more migration, which adds the column `newer` to `batch`; return its revision."""
    shutil.copytree(revision._MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "next.py").write_text(_SOURCE)
    monkeypatch.setattr(revision, "_MIGRATIONS", folder)
    monkeypatch.setattr(revision, "HEAD", _NEXT)
    return _NEXT
