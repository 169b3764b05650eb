"""The compiled matcher (docs/explanation/matching.md); `eventbridge.matching.reference` defines its results."""
