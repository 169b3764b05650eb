"""Holds the examples that end each command's help text. A test parses them and, where it can, runs them.

They use the names of `eventbridge init`: the bus `orders`, the rule `big-orders` and its target `accounts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "init": ("init shop", "init shop -o json"),
    "status": ("status", "status --failures", "status -o json"),
    "deliver": ("deliver --runner orders --until-idle", "deliver --runner orders --streaming"),
    "audit": ("audit", "audit --batch 01890a5d -o json"),
    "erase": ("erase --subject C-1 --dry-run", "erase --id 1 --yes -o json"),
    "stats": ("stats --days 30", "stats --rule big-orders --csv"),
    "sql": (
        'sql "SELECT rule, count(*) AS attempts FROM attempts GROUP BY rule ORDER BY attempts DESC"',
        """sql "SELECT event->>'$.data.amount' AS amount, count(*) FROM events GROUP BY 1" --from 7d -o json""",
    ),
    "tables register": ("tables register lake", "tables register lake --namespace archive -o json"),
    "heartbeat": ("heartbeat https://uptime.example.com/eventbridge", "heartbeat -o json"),
    "serve": ("serve", "serve --host 0.0.0.0 --port 8090"),
    "mcp": ("mcp", "mcp --payloads", "mcp --http --port 8091"),
    "maintain": ("maintain --dry-run", "maintain"),
    "init-airflow": ("init-airflow", "init-airflow /opt/airflow/dags --create"),
    "compile": ("compile",),
    "backup check": ("backup check", "backup check -o json"),
    "rules check": ("rules check", "rules check --rules rules -o json"),
    "rules schema": ("rules schema > rules.schema.json",),
    "rules list": ("rules list", "rules list -o yaml"),
    "rules show": ("rules show big-orders", "rules show big-orders -o yaml"),
    "rules history": ("rules history", "rules history big-orders --limit 10"),
    "rules test": (
        "rules test big-orders --events orders.jsonl --explain",
        "rules test --pattern pattern.json --events orders.jsonl",
    ),
    "rules backtest": ("rules backtest big-orders --from 7d", "rules backtest new-rules.yaml --from 1d --keep"),
    "rules diff": ("rules diff big-orders new-rules.yaml --from 7d", "rules diff big-orders@3f2a big-orders --from 1d"),
    "rules shadow": ("rules shadow big-orders --from 1d",),
    "rules pause": ("rules pause big-orders",),
    "rules resume": ("rules resume big-orders",),
    "rules disable": ("rules disable big-orders", "rules disable big-orders --yes"),
    "rules enable": ("rules enable big-orders",),
    "rules priority": ("rules priority big-orders high", "rules priority big-orders --clear"),
    "rules release": ("rules release big-orders",),
    "rules publish": ("rules publish", "rules publish --rules rules --watch 10"),
    "buses list": ("buses list", "buses list -o json"),
    "buses show": ("buses show orders",),
    "queues list": ("queues list", "queues list -o json"),
    "queues show": ("queues show warehouse",),
    "events publish": (
        "events publish orders orders.jsonl",
        "kafkacat -C -t old | eventbridge events publish orders -",
    ),
    "events tail": (
        "events tail orders --from-beginning --limit 1",
        "events tail orders --forward http://localhost:3000/hook",
        """events tail orders --pattern '{"type": ["order.placed"]}' -o json""",
    ),
    "events find": ("events find --type order.placed --from 2h", "events find --bus orders --subject A-17 -o json"),
    "events show": ("events show 1", "events show 1 --bus orders -o json"),
    "events why": ("events why 1", "events why 1 --from 7d -o json"),
    "targets list": ("targets list", "targets list -o json"),
    "targets show": ("targets show big-orders/accounts",),
    "targets check": ("targets check big-orders/accounts",),
    "targets send": ("targets send big-orders/accounts --event order.json",),
    "targets pause": ("targets pause big-orders/accounts",),
    "targets resume": ("targets resume big-orders/accounts",),
    "targets enable": ("targets enable big-orders/accounts",),
    "targets rate": ("targets rate big-orders/accounts 10/s", "targets rate big-orders/accounts --clear"),
    "dead-letters list": ("dead-letters list --rule big-orders --from 1d", "dead-letters list --reason malformed"),
    "dead-letters show": ("dead-letters show b76c3677", "dead-letters show orders/events/0/17"),
    "dead-letters export": (
        "dead-letters export letters.jsonl --rule big-orders",
        "dead-letters export - --from 1d | jq .reason",
    ),
    "redrives start": ("redrives start --rule big-orders --dry-run", "redrives start --rule big-orders --rate 50"),
    "redrives list": ("redrives list",),
    "redrives show": ("redrives show 3f2a",),
    "redrives resume": ("redrives resume 3f2a",),
    "redrives cancel": ("redrives cancel 3f2a",),
    "replays start": (
        "replays start orders --from 2h --rule big-orders --dry-run",
        "replays start orders --from 2026-11-22T08:00:00Z --to 2026-11-22T09:00:00Z",
    ),
    "replays list": ("replays list",),
    "replays show": ("replays show 3f2a",),
    "replays pause": ("replays pause 3f2a",),
    "replays resume": ("replays resume 3f2a",),
    "replays cancel": ("replays cancel 3f2a",),
    "batches list": ("batches list --limit 5", "batches list -o json"),
    "batches show": ("batches show 01890a5d",),
    "batches repair": ("batches repair 01890a5d --dry-run", "batches repair 01890a5d"),
    "schemas list": ("schemas list", "schemas list --bus orders"),
    "schemas show": ("schemas show order.placed",),
    "plugins list": ("plugins list", "plugins list -o json"),
    "plugins show": ("plugins show kafka", "plugins show file -o yaml"),
    "quality check": ("quality check", "quality check --hour 2026-11-22T08:00"),
    "quality list": ("quality list --limit 48",),
    "quality show": ("quality show", "quality show 2026-11-22T08:00"),
    "tokens create": (
        "tokens create shop --scope publish:orders --expires 90d",
        "tokens create dashboard --scope read --scope metrics",
        "tokens create --owner shop --portal --ttl 7d",
    ),
    "tokens list": ("tokens list",),
    "tokens show": ("tokens show shop",),
    "tokens revoke": ("tokens revoke shop",),
    "ledger migrate": ("ledger migrate",),
    "ledger copy": ("ledger copy sqlite:////var/eventbridge/ledger.sqlite EVENTBRIDGE_LEDGER_URL",),
}


def examples_text(words: str) -> str:
    """Return the examples of a command as the end of its help."""
    lines = (line if "| eventbridge " in line else f"eventbridge {line}" for line in EXAMPLES[words])
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
