"""Explains one event: its landings, the result of every rule, and its trace."""
