"""Clients of servers that sources, targets and stores share."""
