"""Read models of an installation, from ledger, store and buses; nothing is changed."""
