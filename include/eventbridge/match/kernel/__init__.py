"""The compiled matcher: what runs. `docs/matching.md` explains it; `eventbridge.match.reference` says what is right."""
