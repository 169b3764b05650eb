"""Records the examples of responses in openapi.json from a real server.

`PYTHONPATH=tests:. python -m api.recorded` writes them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from api.server import Installation, Server, order
from demo.receiver import Receiver

from eventbridge.api.descriptions import EXAMPLES

_PAYMENT = {"action": "opened", "number": 17}
#: Two rules with HTTP targets: the target of one accepts everything and has a shadow, that of the other refuses all.
_RULES = """
buses:
  orders:
    source: {{type: embedded, topics: [placed, paid], partitions: 2, start_at: earliest}}
    webhooks: {{code: {{signature: github, connection: code}}}}
rules:
  big-orders:
    owner: crm
    bus: orders
    description: {description}
    pattern: {{type: [order.placed], data: {{amount: [{{numeric: [">", 1000]}}]}}}}
    concurrency: 2
    targets:
      accounts: {{type: http, url: "{url}/healthy/accounts", allow_http: true}}
      accounts-next:
        {{type: http, url: "{url}/healthy/next", allow_http: true, shadow_of: accounts,
          transform: {{form: JSONPATH, value: $.data}}}}
  paid-orders:
    owner: crm
    bus: orders
    pattern: {{type: [order.paid]}}
    targets:
      shipping: {{type: queue, queue: shipping}}
      crm: {{type: http, url: "{url}/bad/crm", allow_http: true, retry: {{policy: custom, max_retries: 0}}}}
"""


def shape(value: Any) -> Any:
    """Return a document with its scalars replaced by their types; the items of a list with a shape only once."""
    match value:
        case dict():
            return {name: shape(item) for name, item in value.items()}
        case list():
            return _distinct([shape(each) for each in value])
        case bool() | None:
            return type(value).__name__
        case int() | float():
            return "number"
        case _:
            return "string"


def _distinct(shapes: list[Any]) -> list[Any]:
    return [each for number, each in enumerate(shapes) if each not in shapes[:number]]


def _shortened(value: Any) -> Any:
    """Return a document with only the first item of each shape in its lists."""
    match value:
        case dict():
            return {name: _shortened(item) for name, item in value.items()}
        case list() if value and isinstance(value[0], dict):
            shapes = [shape(each) for each in value]
            return [_shortened(each) for number, each in enumerate(value) if shapes[number] not in shapes[:number]]
        case _:
            return value


class Recorder:
    """Calls a server, and keeps the response of each operation; what is particular to this host is replaced."""

    def __init__(self, client: httpx.Client, replaced: Mapping[str, str]) -> None:
        self._client = client
        self._replaced = replaced
        self.found: dict[str, dict[str, Any]] = {}
        self.continued: set[str] = set()
        paths = client.get("/openapi.json").raise_for_status().json()["paths"]
        self._calls = {
            call["operationId"]: (method.upper(), path) for path, of in paths.items() for method, call in of.items()
        }

    def __call__(self, operation: str, *names: str, **sent: Any) -> Any:
        """Make a call, with `names` as the parts of its path, and return its response; it must succeed."""
        method, path = self._calls[operation]
        for name in names:
            before, _, after = path.partition("{")
            path = f"{before}{httpx.URL(path=f'/{name}').raw_path.decode()[1:]}{after.partition('}')[2]}"
        response = self._client.request(method, path, **sent)
        assert response.is_success, f"{operation}: {response.status_code} {response.text}"
        if operation.startswith("list_"):
            self._follow(response)
        text = response.text
        for here, shown in self._replaced.items():
            text = text.replace(here, shown)
        if "json" in response.headers["content-type"]:
            shown: Any = _shortened(json.loads(text))
        else:
            shown = "".join(line for line in text.splitlines(keepends=True) if "eventbridge_lag" in line)
        self.found.setdefault(operation, {})[str(response.status_code)] = shown
        return response.json() if "json" in response.headers["content-type"] else text

    def _follow(self, response: httpx.Response) -> None:
        """Check that `next` and the header `Link` of a page both lead to the next page."""
        page = response.json()
        assert page.keys() >= {"next"}
        assert ("link" in response.headers) == (page["next"] is not None)
        if page["next"] is not None:
            by_link = self._client.get(response.links["next"]["url"]).raise_for_status().json()
            by_cursor = self._client.get(response.url.copy_set_param("cursor", page["next"])).raise_for_status().json()
            assert by_link.keys() == by_cursor.keys() == page.keys()
            self.continued.add(response.url.path)


def record(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the response of every operation, by its id and status, from an installation in a folder."""
    with Receiver(folder / "received.jsonl") as receiver:
        made = Installation(
            folder,
            EVENTBRIDGE_CONN_CODE="http://?signing_secret=key",
            EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8",
        )
        url = receiver.url("")
        rules = folder / "rules" / "orders.yaml"
        rules.write_text(_RULES.format(url=url, description="for the accounts"))
        token = made.token("shop", "publish:*", "consume:*", "read", "operate", "payloads", "metrics")
        replaced = {url: "http://crm.example.com", str(folder): "/srv/shop", socket.gethostname(): "host-1"}
        with Server(made) as server, server.client(token) as client:
            call = Recorder(client, replaced)
            _publish(call)
            made.deliver("orders")
            rules.write_text(_RULES.format(url=url, description="for the accounts and the next accounts"))
            call("publish_events", "orders", json=[order(3, data={"amount": 3000})], headers=_batched())
            made.deliver("orders")
            with made.opened() as runtime:
                runtime.ledger.pools.record_slots("eventbridge.rule.big-orders", 2, 2)
            made.run("quality", "check")
            _read(call)
            _act(call)
            _consume(call)
            _redrive(call, made)
            _replay(call, made)
            call("list_actions", params={"limit": 1})
    return dict(sorted(call.found.items()))


def _batched() -> dict[str, str]:
    return {"content-type": "application/cloudevents-batch+json"}


def _publish(call: Recorder) -> None:
    paid = order(2, type="order.paid", data={"amount": 2000}, subject="A-17")
    call("publish_events", "orders", json=[order(1, data={"amount": 1999})], headers=_batched())
    some = [paid, {"specversion": "1.0", "id": "o4", "source": "/shop"}]
    call("publish_events", "orders", json=some, headers=_batched())
    body = json.dumps(_PAYMENT).encode()
    signature = f"sha256={hmac.new(b'key', body, hashlib.sha256).hexdigest()}"
    headers = {"x-github-event": "issues", "x-github-delivery": "72d3162e", "x-hub-signature-256": signature}
    call("receive_webhook", "code", content=body, headers=headers | {"content-type": "application/json"})


def _read(call: Recorder) -> None:
    for operation in ("get_health", "get_metrics", "get_status", "get_audit"):
        call(operation)
    for operation in (
        *("list_batches", "list_chunks", "list_dead_letter_groups", "list_dead_letters", "list_events"),
        *("list_pools", "list_quality_checks", "list_rule_changes", "list_rules", "list_schemas", "list_stats"),
        "list_targets",
    ):
        call(operation, params={"limit": 1})
    call("list_buses", params={"limit": 2})
    call("get_bus", "orders")
    call("get_rule", "big-orders")
    call("list_rule_versions", "big-orders", params={"limit": 1})
    call("list_shadows", "big-orders", params={"samples": 1})
    call("list_type_schemas", "order.placed")
    call("get_target", "big-orders", "accounts")
    call("get_event", "o1")
    batch = call("list_batches", params={"limit": 1})["batches"][0]["batch_id"]
    call("get_batch", batch)
    call("get_dead_letter", call("list_dead_letters", params={"limit": 1})["dead_letters"][0]["name"])
    call("get_quality_check", call("list_quality_checks", params={"limit": 1})["quality_checks"][0]["hour"])


def _act(call: Recorder) -> None:
    for operation in ("pause_rule", "resume_rule", "disable_rule", "enable_rule"):
        call(operation, "big-orders")
    call("release_rule", "big-orders", json={})
    call("set_rule_priority", "big-orders", json={"priority": "high"})
    call("clear_rule_priority", "big-orders")
    for operation in ("pause_target", "resume_target", "enable_target", "check_target"):
        call(operation, "big-orders", "accounts")
    call("set_target_rate", "big-orders", "accounts", json={"rate": "10/s"})
    call("clear_target_rate", "big-orders", "accounts")
    call("send_event_to_target", "big-orders", "accounts", json={"event_id": "o1"})
    call("test_rule", "big-orders", json={"event_id": "o1", "pattern": {"type": ["order.paid"]}})
    call("check_rule_file", json={"file": "new.yaml", "content": "buses: {returns: {source: {type: embedded}}}"})


def _consume(call: Recorder) -> None:
    call("list_queues", params={"limit": 1})
    (received,) = call("receive_deliveries", "shipping", json={"count": 1})["deliveries"]
    mine = {"receipts": [received["receipt"]]}
    call("extend_deliveries", "shipping", json=mine | {"visibility_timeout": "5m"})
    call("acknowledge_deliveries", "shipping", json=mine)
    call("release_deliveries", "shipping", json=mine | {"error": "no stock"})


def _redrive(call: Recorder, made: Installation) -> None:
    call("start_redrive", json={"rule": "paid-orders", "from": "2h", "dry_run": True})
    call("cancel_redrive", call("start_redrive", json={"rule": "paid-orders"})["redrive_id"])
    redrive = call("start_redrive", json={"rule": "paid-orders", "from": "2h"})["redrive_id"]
    made.redrive(redrive)
    call("get_redrive", redrive)
    call("list_redrives", params={"limit": 1})


def _replay(call: Recorder, made: Installation) -> None:
    wanted = {"bus": "orders", "from": "2h", "rules": ["big-orders"], "pattern": {"id": ["o1"]}}
    call("start_replay", json=wanted | {"dry_run": True})
    call("cancel_replay", call("start_replay", json=wanted)["replay_id"])
    replay = call("start_replay", json=wanted)["replay_id"]
    call("pause_replay", replay)
    call("resume_replay", replay)
    made.replay(replay)
    call("get_replay", replay)
    call("list_replays", params={"limit": 1})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder))
    lines = (f"  {json.dumps(name)}: {json.dumps(of, ensure_ascii=False)}" for name, of in recorded.items())
    EXAMPLES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
