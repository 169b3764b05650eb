"""What programs read: the fields and types of each `--json` document, by the command that writes it."""

from __future__ import annotations

from typing import Any

PARTITION = {"topic": "str", "broker": "str", "partition_id": "int"}


BATCH = {
    "batch_id": "str",
    "kind": "str",
    "runner": "str",
    "bus": "str",
    "state": "str",
    "rule_set": "str",
    "planned_at": "str",
    "deadline_at": "str",
    "replay_id": "str",
    "committed_at": "str",
    "bus_committed_at": "str",
    "kept": "str",
    "remaining": "str",
    "is_full": "bool",
    "in_index": "str",
    "follows": "null",
}


DEAD_LETTER = {
    "name": "str",
    "delivery_id": "str",
    "rule": "str",
    "rule_version": "str",
    "bus": "str",
    "target": "str",
    "topic": "str",
    "broker": "str",
    "partition_id": "int",
    "offset": "int",
    "source": "str",
    "event_id": "str",
    "reason": "str",
    "detail": "str",
    "arrived_at": "str",
    "first_attempt_at": "str",
    "last_attempt_at": "str",
    "batch_id": "str",
    "request_content_type": "str",
    "redriven": "null",
}


REDRIVE = {
    "redrive_id": "str",
    "state": "str",
    "started_at": "str",
    "ended_at": "str",
    "selection": {"target": "str"},
    "rate": "null",
    "retransform": "bool",
    "again": "bool",
    "taken": "int",
    "outcomes": {"dead_lettered": "int"},
}


ATTEMPT = {
    "number": "int",
    "started_at": "str",
    "duration_ms": "float",
    "outcome": "str",
    "code": "int",
    "error_class": "null",
    "error": "str",
    "response_head": "str",
}


TARGET = {
    "rule": "str",
    "target": "str",
    "state": "str",
    "reason": "str",
    "since": "str",
    "until": "null",
    "good": "int",
    "slow": "bool",
    "failing_since": "null",
    "paused_until": "null",
}


CHUNK = {
    "batch_id": "str",
    "chunk_id": "int",
    "kind": "str",
    "source": "str",
    "state": "str",
    "handed_out": "bool",
    "targets": ["str"],
    "rows": "int",
    "succeeded": "int",
    "failed": "int",
    "claim": "int",
    "worker": "str",
    "started_at": "str",
    "ended_at": "str",
    "seconds": "float",
    "error": "str",
    "last_failure": "str",
}


SHAPES: dict[tuple[str, ...], Any] = {
    ("rules", "check"): {
        "errors": [],
        "rule_set": "str",
        "buses": "int",
        "rules": "int",
        "tests": "int",
        "warnings": [],
    },
    ("rules", "test", "big-orders", "--explain", "--events", "one.jsonl"): [
        {
            "line": "int",
            "event": "str",
            "matches": "bool",
            "error": "null",
            "malformed": "null",
            "findings": [{"path": "str", "condition": "str", "values": ["str"], "message": "str"}],
        }
    ],
    ("events", "publish", "orders", "one.jsonl"): {
        "bus": "str",
        "topic": "str",
        "published": "int",
        "malformed": "int",
        "unregistered": [],
    },
    ("events", "tail", "orders", "--from-beginning", "--limit", "1"): {
        "topic": "str",
        "broker": "str",
        "partition_id": "int",
        "offset": "int",
        "published_at": "str",
        "event": {
            "specversion": "str",
            "id": "str",
            "source": "str",
            "type": "str",
            "data": {"amount": "int"},
        },
        "malformed": "null",
        "body": "null",
        "forwarded": "null",
    },
    ("status",): {
        "now": "str",
        "partitions": [
            {
                "runner": "str",
                "bus": "str",
                "partition": PARTITION,
                "committed": "int",
                "pulled": "int",
                "end": "int",
                "gap": "str",
                "lag": "int",
                "in_flight": "int",
                "available": "int",
            }
        ],
        "flows": [
            {
                "runner": "str",
                "bus": "str",
                "partition": PARTITION,
                "published": "float",
                "settled": "float",
                "capacity": "null",
                "drains_in_seconds": "float",
                "grows": "bool",
            }
        ],
        "ingestion_stop": "null",
        "store_quota": "null",
        "airflow_changes_dropped": "null",
        "unregistered": [],
        "stalled": [],
        "streaming": [],
        "batches": [BATCH],
        "chunks": {},
        "pending": [
            {
                "rule": "str",
                "target": "str",
                "state": "str",
                "reason": "str",
                "count": "int",
                "next_due_at": "str",
                "hold_reason": "str",
            }
        ],
        "deferred_matches": [],
        "rules_on_hold": [],
        "targets": [TARGET | {"failing_since": "str"}],  # the first is a failing one
        "overrides": [],
        "pools": [],
        "owners": [],
        "errors": [],
        "rules_since": "str",
    },
    ("maintain",): {
        "dry_run": "bool",
        "batches": {},
        "files": "int",
        "lost_files": "int",
        "compacted": "int",
        "rows": "int",
        "rule_changes": "int",
        "requests": "int",
        "messages": {},
        "kept": {},
        "finished": "bool",
        "store_bytes": "null",
        "tables": "int",
    },
    ("ledger", "migrate"): {"before": "str", "now": "str"},
    ("backup", "check"): {
        "status": "str",
        "ledger": "str",
        "store": "str",
        "batches": "int",
        "newest_batch": "str",
        "unknown_manifests": "int",
        "missing_manifests": "int",
        "missing_files": "int",
        "other_ledgers": [],
        "examples": [],
    },
    ("rules", "release", "big-orders"): {
        "rule": "str",
        "hold": "null",
        "deferred_matches": "int",
        "events": "int",
        "waits_for": "str",
        "retried": [],
        "skipped": [],
        "unsendable": [],
        "disabled": [],
        "expectation": "null",
        "released": "int",
    },
    ("quality", "list"): [],
    ("deliver", "--runner", "orders", "--until-idle", "--spark", "sc://127.0.0.1:1"): {
        "batches": "int",
        "retry_batches": "int",
        "next_due_at": "str",
        "pending": "int",
        "on_hold": "int",
    },
    ("audit",): {
        "batches": "int",
        "open_batches": "int",
        "pruned": "int",
        "events": {
            "range_total": "int",
            "from_archive": "int",
            "gaps": "int",
            "read": "int",
            "malformed": "int",
            "duplicate": "int",
            "tombstone": "int",
            "valid": "int",
        },
        "deliveries": {"*": {"matched": "int", "delivered": "int", "dead_lettered": "int", "pending": "int"}},
        "differences": [],
    },
    ("events", "why", "o1"): {
        "event_id": "str",
        "events": [
            {
                "position": {"bus": "str", "topic": "str", "broker": "str", "partition_id": "int", "offset": "int"},
                "status": "str",
                "reason": "null",
                "source": "str",
                "type": "str",
                "published_at": "str",
                "duplicate_of": "null",
                "landings": [
                    {
                        "batch_id": "str",
                        "runner": "str",
                        "state": "str",
                        "rule_set": "str",
                        "planned_at": "str",
                        "file": "str",
                        "row": "int",
                        "arrived_at": "str",
                        "archived": "bool",
                    }
                ],
                "rules": [
                    {
                        "rule": "str",
                        "version": "str",
                        "runner": "str",
                        "enabled": "bool",
                        "matched": "bool",
                        "conditions": [
                            {"met": "bool", "path": "str", "condition": "str", "values": ["str"], "message": "str"}
                        ],
                        "where": "null",
                        "where_met": "null",
                        "change": "str",
                        "current_version_matches": "null",
                    }
                ],
                "deliveries": [
                    {
                        "rule": "str",
                        "target": "str",
                        "delivery_id": "str",
                        "replay_id": "str",
                        "state": "str",
                        "attempts": "int",
                        "reason": "null",
                        "batch_id": "str",
                        "due_at": "null",
                        "hold_reason": "null",
                        "file": "str",
                        "row": "int",
                    }
                ],
                "steps": [
                    {
                        "at": "str",
                        "what": "str",
                        "batch_id": "str",
                        "rule": "null",
                        "target": "null",
                        "delivery_id": "null",
                        "attempt": "null",
                        "outcome": "null",
                        "code": "null",
                        "reason": "null",
                        "detail": "null",
                        "duration_ms": "null",
                        "response_head": "null",
                    }
                ],
            }
        ],
        "not_landed": [],
        "before_start": [],
        "searched": {"batches": "int", "pruned": "int", "files": "int", "oldest": "str", "newest": "str"},
        "notes": [],
        "unreadable": [],
    },
    ("dead-letters", "list", "--target", "bad"): [DEAD_LETTER],
    ("dead-letters", "export", "dead-letters.jsonl", "--target", "bad"): {"file": "str", "dead_letters": "int"},
    ("dead-letters", "show", "BAD"): DEAD_LETTER
    | {"event": "str", "request": "str", "request_headers": "null", "attempts": [ATTEMPT]},
    ("redrives", "start", "--all", "--dry-run"): {
        "taken": [{"of": "str", "count": "int"}],
        "left": [{"of": "str", "count": "int", "why": "str"}],
    },
    ("redrives", "start", "--target", "bad"): REDRIVE,
    ("replays", "start", "orders", "--from", "1h", "--dry-run"): {
        "files": "int",
        "read": "int",
        "taken": "int",
        "deliveries": {"*": "int"},
        "samples": {"*": ["str"]},
        "more": "bool",
    },
    ("init", "FOLDER"): {"folder": "str", "created": "bool", "files": [{"file": "str", "written": "bool"}]},
    ("init-airflow", "FOLDER", "--create"): {
        "folder": "str",
        "created": "bool",
        "files": [{"file": "str", "written": "bool"}],
    },
    ("redrives", "list"): [],
    ("status", "--chunks"): [CHUNK],
    ("status", "--failures"): [CHUNK],
    ("targets", "list"): [TARGET | {"since": "null", "waiting": "int", "hold_reason": "str"}],
    ("tokens", "create", "shop", "--scope", "publish:orders", "--expires", "1d"): {
        "token": "str",
        "name": "str",
        "scopes": ["str"],
        "made_at": "str",
        "expires_at": "str",
        "revoked_at": "null",
    },
    ("stats",): {
        "from": "str",
        "to": "str",
        "rules": [
            {
                "day": "str",
                "bus": "str",
                "rule": "str",
                "matched": "int",
                "delivered": "int",
                "dead_lettered": "int",
                "pending": "int",
                "size": "int",
                "cpu_seconds": "float",
                "mean_seconds": "float",
            }
        ],
        "buses": [
            {
                "day": "str",
                "bus": "str",
                "valid": "int",
                "duplicate": "int",
                "malformed": "int",
                "tombstone": "int",
                "gap": "int",
                "size": "int",
            }
        ],
    },
    ("plugins", "show", "file"): [
        {
            "kind": "str",
            "type": "str",
            "package": "str",
            "version": "str",
            "built_in": "bool",
            "settings": {"path": {"description": "str", "minLength": "int", "type": "str"}},
            "required": ["str"],
            "error": "null",
        }
    ],
    ("schemas", "list"): [
        {
            "bus": "str",
            "type": "str",
            "sampled": "int",
            "fields": "int",
            "lost": "int",
            "first_at": "str",
            "last_at": "str",
            "changed_at": "null",
        }
    ],
    ("schemas", "show", "order.placed"): [
        {
            "bus": "str",
            "type": "str",
            "sampled": "int",
            "first_at": "str",
            "last_at": "str",
            "fields": [
                {
                    "path": "str",
                    "types": ["str"],
                    "seen": "int",
                    "null_rate": "float",
                    "missing": "int",
                    "lost": "bool",
                    "example": "null",
                    "first_at": "str",
                    "last_at": "str",
                    "changes": [],
                }
            ],
        }
    ],
    ("tokens", "list"): [],
    ("targets", "check", "all-orders", "gone"): {
        "rule": "str",
        "target": "str",
        "reached": "bool",
        "error": "null",
    },
    ("targets", "enable", "all-orders", "gone"): {"rule": "str", "target": "str", "before": "str", "released": "int"},
}
