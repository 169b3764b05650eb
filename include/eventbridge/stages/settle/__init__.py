"""Gives each delivery of a batch its verdict, keeps dead letters, parks what is tried again."""
