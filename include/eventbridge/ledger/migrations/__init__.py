"""The migrations that create and change the ledger's tables; `ledger/revision.py` has Alembic run them."""
