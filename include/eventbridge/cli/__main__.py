"""Runs the command line with `python -m eventbridge.cli` where its script is not installed."""

from eventbridge.cli import main

main()
