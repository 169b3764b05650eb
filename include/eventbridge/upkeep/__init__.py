"""Removes what is past its retention from store, ledger and embedded buses."""
