"""A server that has something to tell; serves the tests of what the API and its page show."""

from __future__ import annotations

import json
from pathlib import Path

from api.server import Installation, Server, order

#: One rule whose target never takes anything, so that its deliveries are dead letters at once.
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


def told_of(folder: Path) -> Server:
    """Return a server whose installation has delivered three orders, one of them to no avail, and got one that is none.

    What its tests do must leave that as it is: the next one counts it.
    """
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "refused.yaml").write_text(REFUSED.format(folder=folder))
    events = folder / "orders.jsonl"
    markup = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    escaped = order(1, data={"amount": 1, "half": "\ud800"}, subject='the "Zürich"')  # half a character, as escapes
    hostile = order(2, data={"amount": 2, "text": markup}, subject=markup)
    events.write_text("\n".join([*(json.dumps(each) for each in (order(0), escaped, hostile)), f"no event {markup}"]))
    made.run("bus", "publish", "orders", str(events))
    made.deliver("orders")
    return Server(made)
