"""Every statement of the ledger, by name, in one file a noun; what varies with its filters is a function.

All of them are the same for SQLite and PostgreSQL. A row that a transaction decides by is read `FOR SHARE`:
PostgreSQL then keeps it as it is until the transaction ends; in SQLite the transaction has the database to itself.
"""
