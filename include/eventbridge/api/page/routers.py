"""The routers of all pages except the login, for the applications that serve them and for the tests."""

from __future__ import annotations

from eventbridge.api.page import actions, backtests, batches, operations, page, redrives, replays, schemas, target_tests

ROUTERS = tuple(
    part.router for part in (page, actions, operations, backtests, batches, redrives, replays, schemas, target_tests)
)
