"""Gives each delivery of a batch its verdict, keeps dead letters, makes pending what is tried again."""
