"""How a ledger of an earlier version becomes one of today's; Alembic runs it, `ledger/revision.py` starts it."""
