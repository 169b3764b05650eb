"""Spark SQL expressions of users: parsed into a tree of allowed parts, and written again from that tree for Spark."""
