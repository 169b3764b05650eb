"""Targets: where deliveries go; each implements `protocol.Target` and passes the target contract suite."""
