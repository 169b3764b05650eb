"""The compiled matcher, explained in `docs/matching.md`; `eventbridge.match.reference` defines its results."""
