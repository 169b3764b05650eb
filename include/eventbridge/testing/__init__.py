"""Provides fakes and servers for tests; each passes the contract suite of the component it replaces."""
