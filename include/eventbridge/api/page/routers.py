"""Every page but its own login, for each application that serves them, and for the tests that look at each."""

from __future__ import annotations

from eventbridge.api.page import actions, acts, backtests, batches, page, redrives, replays, schemas, tries

ROUTERS = tuple(part.router for part in (page, actions, acts, backtests, batches, redrives, replays, schemas, tries))
