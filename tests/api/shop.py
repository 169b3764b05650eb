"""A server of a shop whose events have each status once or more, for the tests of what the page shows of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.server import Installation, Server, order
from demo.receiver import ADDRESSES, Receiver

RULES = """
rules:
  refunds:
    bus: orders
    pattern: {type: [order.refunded]}
    targets:
      ledger: {type: http, url: "URL/status/400", allow_http: true}
      mail: {type: file, path: FOLDER/mail.jsonl}
  large-orders:
    owner: finance
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 100]}]}}
    targets:
      partner: {type: http, url: "URL/status/429", allow_http: true,
                retry: {policy: custom, max_retries: 5, initial_delay: 600s, max_delay: 600s}}
"""


def shop_events() -> list[dict[str, object]]:
    """Return two refunds, which the ledger refuses, a large order, which waits, and others; one matches no rule."""
    refunds = [order(number, id=f"refund-{number}", type="order.refunded", data={"amount": 5}) for number in range(2)]
    formula = order(7, id='=HYPERLINK("http://evil")', type="order.placed", data={"amount": 7})
    others = [order(number, data={"amount": number}) for number in (3, 150)]
    return [*refunds, *others, formula, order(9, type="cart.emptied")]


@contextmanager
def shop_server(folder: Path) -> Iterator[Server]:
    """Serve the shop; the rule of all orders is left out, so that some events match no rule."""
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES)
    rules = folder / "rules" / "orders.yaml"
    rules.write_text(rules.read_text().replace("pattern: {}", "pattern: {type: [{prefix: order.}]}"))
    (folder / "events.jsonl").write_text("\n".join(json.dumps(each) for each in shop_events()))
    with Receiver(folder / "requests.jsonl") as receiver:
        text = RULES.replace("FOLDER", str(folder)).replace("URL", receiver.url("").rstrip("/"))
        (folder / "rules" / "shop.yaml").write_text(text)
        made.run("events", "publish", "orders", str(folder / "events.jsonl"))
        made.deliver("orders")
        with Server(made) as running:
            yield running
