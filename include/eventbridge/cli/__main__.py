"""`python -m eventbridge.cli`: the command line where its script is not installed."""

from eventbridge.cli import main

main()
