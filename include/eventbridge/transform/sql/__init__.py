"""Parses Spark SQL expressions of users into a tree of allowed parts, from which the text for Spark is written."""
