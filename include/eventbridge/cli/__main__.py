"""Runs the command line by `python -m eventbridge.cli` where its script is not installed."""

from eventbridge.cli import main

main()
