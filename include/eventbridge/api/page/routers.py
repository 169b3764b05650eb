"""The routers of all pages except the login, for the applications that serve them and for the tests."""

from __future__ import annotations

from eventbridge.api.page import actions, acts, backtests, batches, page, redrives, replays, schemas, tries

ROUTERS = tuple(part.router for part in (page, actions, acts, backtests, batches, redrives, replays, schemas, tries))
