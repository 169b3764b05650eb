"""The compiled matcher, explained in `docs/matching.md`; `eventbridge.matching.reference` defines its results."""
