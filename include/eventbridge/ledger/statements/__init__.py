"""All statements of the ledger, by name, in one file a noun; a statement that varies with its filters is a function.

They are the same for SQLite and PostgreSQL. A row on which a transaction decides is read `FOR SHARE`: PostgreSQL then
keeps it unchanged until the transaction ends; in SQLite the transaction has exclusive use of the database.
"""
