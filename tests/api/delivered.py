"""A server with deliveries and dead letters, for the tests of what the API and its page show."""

from __future__ import annotations

import json
from pathlib import Path

from api.server import Installation, Server, order

#: A rule whose target rejects everything, so that its deliveries are dead-lettered at once.
REFUSED = """
rules:
  refused:
    owner: crm
    bus: orders
    pattern: {{type: [order.placed], data: {{amount: [{{numeric: [">", 1]}}]}}}}
    targets:
      crm: {{type: http, url: "http://127.0.0.1:9/nowhere", allow_http: true,
            retry: {{policy: custom, max_retries: 0}}}}
"""


def delivered_server(folder: Path) -> Server:
    """Return a server whose installation has delivered three orders, dead-lettered one, and got a malformed event.

    Tests must not change these numbers, because others count them.
    """
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "refused.yaml").write_text(REFUSED.format(folder=folder))
    events = folder / "orders.jsonl"
    markup = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    escaped = order(1, data={"amount": 1, "half": "\ud800"}, subject='the "Zürich"')  # half a character, as escapes
    hostile = order(2, data={"amount": 2, "text": markup}, subject=markup)
    events.write_text("\n".join([*(json.dumps(each) for each in (order(0), escaped, hostile)), f"no event {markup}"]))
    made.run("events", "publish", "orders", str(events))
    made.deliver("orders")
    return Server(made)
