"""Builds the JSON Schema of rule files, with which editors complete, describe and check fields while you type.

`eventbridge rules check` decides what is valid. The schema describes each field and its values, but not how fields
depend on one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from eventbridge.errors import TypeUnusable
from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Transform
from eventbridge.rules.node import Location, Node
from eventbridge.rules.types import (
    SOURCE_TYPES,
    TARGET_TYPES,
    TRANSFORM_TYPES,
    Registry,
    SourceType,
    TargetType,
    TransformType,
)
from eventbridge.rules.vocabulary import (
    COMPRESSIONS,
    CONTENT_MODES,
    ERRORS_TOLERANCE,
    FIELDS,
    FORMS,
    METHODS,
    MODES,
    NEW_COLUMNS,
    NOT_FOR_QUEUES,
    POLICIES,
    POLICY_ALIASES,
    PRIORITIES,
    SIGNATURE_HEADERS,
    SIGNATURES,
)

_Schema = dict[str, Any]

_TEXT: Final[_Schema] = {"type": "string", "minLength": 1}
_NAME: Final[_Schema] = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}
_FLAG: Final[_Schema] = {"type": "boolean"}
_ANYTHING: Final[_Schema] = {}
_DURATION: Final[_Schema] = {"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$"}
_SIZE: Final[_Schema] = {"type": ["string", "integer"]}
_RATE: Final[_Schema] = {"type": "string", "pattern": r"^\d+(\.\d+)?/(s|m)$"}
_STATUS: Final[_Schema] = {
    "anyOf": [
        {"type": "integer", "minimum": 300, "maximum": 599},
        {"type": "string", "pattern": "^[345](xx|[0-9]{2}(-[345][0-9]{2})?)$"},
    ]
}
_SHARE: Final[_Schema] = {"type": "number", "minimum": 0, "maximum": 1}


def _whole(low: int, high: int) -> _Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _one_of(words: Iterable[str]) -> _Schema:
    return {"enum": [*words]}


def _list_of(item: _Schema) -> _Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _mapping_of(item: _Schema) -> _Schema:
    return {"type": "object", "additionalProperties": item}


def _ref(what: str) -> _Schema:
    return {"$ref": f"#/definitions/{_key(what)}"}


def _key(what: str) -> str:
    return what.removeprefix("a ").removeprefix("an ").replace("'s", "").replace(" ", "_")


#: The schema and the description of each field, by kind of mapping.
_FIELD_SCHEMAS: Final[Mapping[str, Mapping[str, tuple[_Schema, str]]]] = {
    "a rule file": {
        "owners": (_mapping_of(_ref("an owner")), "Quotas of owners, by name."),
        "buses": (_mapping_of(_ref("a bus")), "Buses by name."),
        "runners": (_mapping_of(_ref("a runner")), "Modes of runners, by name; the default is batch mode."),
        "rules": (_mapping_of(_ref("a rule")), "Rules by name."),
    },
    "an owner": {
        "published": (_RATE, "Events a second that the owner may publish."),
        "pending": (_ref("pending deliveries"), "The limit of pending deliveries of all its rules."),
        "stored": (_SIZE, "Bytes that the owner's events may take in the store."),
    },
    "a runner": {
        "mode": (_one_of(MODES), "batch: DAG runs on Spark, seconds. streaming: one task, milliseconds."),
        "streaming": (_ref("streaming mode"), "Settings of streaming mode."),
    },
    "streaming mode": {
        "task_duration": (_DURATION, "How long a streaming task runs before it hands over."),
        "batch_interval": (_DURATION, "How long an open batch takes events."),
        "idle": (_DURATION, "A streaming task without events ends after this time."),
        "backlog": (_DURATION, "A longer backlog is delivered as one batch."),
    },
    "a bus": {
        "source": (_ref("a source"), "Where the events come from."),
        "owner": (_NAME, "The team that owns the bus."),
        "retention": (_DURATION, "How long the archive keeps events; default 30d."),
        "weights": (_mapping_of(_whole(1, 100)), "Shares of the topics in a batch."),
        "max_backlog": (_whole(1, 10**12), "The backlog at which the publish API responds with 429."),
        "webhooks": (_mapping_of(_ref("a webhook")), "Signed calls of other services that become events."),
    },
    "a webhook": {
        "signature": (_one_of(SIGNATURES), "The signature scheme of the sender; `standard`: also that of Svix."),
        "connection": (_NAME, "The connection whose extra signing_secret has the secret."),
        "mapping": (_ref("a webhook's mapping"), "Overrides for attributes of the event."),
    },
    "a webhook's mapping": {
        name: (_TEXT, f"The event's {name}: a text, or a path in the JSON of the call.")
        for name in FIELDS["a webhook's mapping"]
    },
    "a mapping": {
        name: (_TEXT, f"The event's {name}: a text, $.path of the message, or $header.NAME.")
        for name in FIELDS["a mapping"]
    },
    "a rule": {
        "description": (_TEXT, "What the rule is for."),
        "owner": (_NAME, "The team that owns the rule."),
        "bus": (_NAME, "The bus whose events the rule matches."),
        "runner": (_NAME, "The runner of the rule; default: the name of its bus."),
        "enabled": (_FLAG, "false: the rule matches nothing."),
        "pattern": ({"type": "object"}, "Which events match; {} matches every event."),
        "where": (_TEXT, "A Spark SQL condition that matching events must meet."),
        "priority": (_one_of(PRIORITIES), "The weight of the rule's push tasks; default medium."),
        "concurrency": (_whole(1, 10_000), "How many push tasks may run at a time: the slots of the rule's pool."),
        "pool": (_NAME, "The Airflow pool of the rule's push tasks."),
        "expect": (_ref("an expectation"), "Bounds on what the rule matches; a failure puts it on hold."),
        "pending": (_ref("pending deliveries"), "The limit of pending deliveries."),
        "tests": (_list_of(_ref("a test")), "Events with expected results; rules check runs them."),
        "targets": (_mapping_of(_ref("a target")), "Targets by name."),
    },
    "pending deliveries": {"max": (_whole(1, 10**9), "The number at which further matches are deferred.")},
    "an expectation": {
        "matches": (_ref("bounds"), "Bounds of the number of matches in a batch."),
        "dead_letter_rate": (_ref("bounds"), "Share of deliveries that become dead letters, 0 to 1."),
        "transform_failure_rate": (_ref("bounds"), "Share of deliveries that cannot be rendered, 0 to 1."),
        "fields": (_mapping_of(_ref("a field expectation")), "Expectations by path, such as $.data.id."),
    },
    "a field expectation": {
        "null_rate": (_ref("bounds"), "Share of events without a value at the path, 0 to 1."),
        "value": (_ref("bounds"), "Bounds of the number at the path."),
    },
    "bounds": {
        "at_least": ({"type": "number"}, "The lower bound, included."),
        "at_most": ({"type": "number"}, "The upper bound, included."),
    },
    "a test": {
        "event": ({"type": "object"}, "A CloudEvent; id, source and specversion are filled in."),
        "matches": (_FLAG, "Whether the rule must match it; default true."),
        "outputs": ({"type": "object"}, "The expected output, by target."),
    },
    "a transform": {
        "form": (_one_of(FORMS), "How the output is made; default ORIGINAL."),
        "value": (_ANYTHING, "A constant, a path, variables of the template, an expression, or settings."),
        "template": (_TEXT, "The text, with ${name} for the values."),
        "steps": ({"type": "array"}, "Changes of the event, for the form FIELDS."),
        "missing": (_one_of(("null", "error")), "Whether a missing value becomes null or is an error."),
        "content_type": (_TEXT, "TEMPLATE: the content type of the output, which decides how values are escaped."),
    },
    "a retry policy": {
        "policy": (_one_of((*POLICIES, *POLICY_ALIASES)), "Default EXPONENTIAL_DECAY_RETRY: about a day."),
        "max_retries": (_whole(0, 1_000), "custom: retries after the first attempt."),
        "initial_delay": (_DURATION, "custom: delay before the first retry."),
        "multiplier": ({"type": "number", "minimum": 1, "maximum": 100}, "custom: factor between two delays."),
        "max_delay": (_DURATION, "custom: the longest delay."),
        "jitter": (_SHARE, "custom: each delay varies at random by up to this share."),
        "maximum_event_age": (_DURATION, "The age at which a delivery becomes a dead letter."),
    },
    "a delivery window": {
        "hours": ({"type": "string", "pattern": r"^\d\d:\d\d ?- ?\d\d:\d\d$"}, "Such as 08:00-18:00."),
        "weekdays": (
            _list_of(_one_of(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))),
            "The days on which the hours apply; default: every day.",
        ),
        "time_zone": (_TEXT, "An IANA name, such as Europe/Berlin."),
        "blackout_dates": (_list_of({"type": "string"}), "Days on which nothing is sent, as YYYY-MM-DD."),
    },
    "a batch": {
        "count": (_whole(2, 10_000), "The maximum number of deliveries in one request or DAG run; http: 200."),
        "bytes": (_SIZE, "The maximum size of the body of one request or DAG run."),
    },
    "a signature": {
        "headers": (_one_of(SIGNATURE_HEADERS), "standard: webhook-id, -timestamp, -signature. svix: svix-id, ..."),
    },
    "a handshake": {"origin": (_TEXT, "The host name that identifies this installation to the target.")},
    "a timeout": {
        "total": (_DURATION, "The timeout of one attempt."),
        "connect": (_DURATION, "The timeout for connecting, which is part of the total."),
    },
}

_TARGET_FIELDS: Final[Mapping[str, tuple[_Schema, str]]] = {
    "transform": (_ref("a transform"), "What the target receives; default: the event."),
    "retry": (_ref("a retry policy"), "How often a failed delivery is tried again."),
    "errors_tolerance": (_one_of(ERRORS_TOLERANCE), "none: a delivery that fails permanently puts the rule on hold."),
    "ordering_key": (_TEXT, "A path, or partition: deliveries with the same value stay in order."),
    "disable_after": (_DURATION, "How long a target may fail before it is disabled."),
    "rate": (_RATE, "Deliveries a second or a minute, such as 200/s."),
    "not_before": (_TEXT, "The earliest time to send: a path, or a duration after the arrival."),
    "deliver_between": (_ref("a delivery window"), "The hours and days in which deliveries may be sent."),
    "deliver_within": (_DURATION, "How old a delivery may become before it is dead-lettered."),
    "shadow_of": (_NAME, "The target of which this one is a shadow."),
    "dead_letter_queue": (_ref("a dead letter queue"), "A further target that gets a copy of each dead letter."),
}

#: The fields of the built-in types of targets and sources; a field that is missing here accepts any value.
_TYPE_FIELDS: Final[Mapping[str, tuple[_Schema, str]]] = {
    "url": ({"type": "string", "pattern": "^https?://"}, "The URL to which requests are sent."),
    "allow_http": (_FLAG, "true: a URL with http: is allowed."),
    "connection": (_NAME, "The connection with the credentials or the addresses of brokers."),
    "topic": (_TEXT, "The topic to publish to."),
    "topics": (_list_of(_TEXT), "The topics of the bus."),
    "tag": (_TEXT, "The tag of the messages."),
    "bucket": (_TEXT, "The bucket, which must exist."),
    "prefix": (_TEXT, "The prefix of the objects' keys."),
    "format": (_one_of(("jsonl", "parquet")), "The format of the objects."),
    "timeout": ({"anyOf": [_DURATION, _ref("a timeout")]}, "The timeout of one attempt, 1s to 30s."),
    "max_in_flight": (_whole(1, 10_000), "How many requests or messages of one push task may be in flight."),
    "content_mode": (_one_of(CONTENT_MODES), "How an event is sent if no transform renders it."),
    "path": (_TEXT, "The file to append to."),
    "dag_id": (_TEXT, "The DAG to start."),
    "asset": (_TEXT, "The asset to make events of, by name or URI."),
    "partition_key": (_TEXT, "The member of the payload that holds the partition key."),
    "batch": (_ref("a batch"), "Several deliveries in one request."),
    "method": (_one_of(METHODS), "The method of the requests; default POST."),
    "headers": (_mapping_of(_TEXT), "Headers of every request, by name. Never secrets."),
    "signature": (_ref("a signature"), "The names of the headers with id, time and signature."),
    "compression": (_one_of(COMPRESSIONS), "gzip: bodies are sent compressed."),
    "proxy": (_NAME, "The connection of an egress proxy."),
    "handshake": (_ref("a handshake"), "Ask the target for its consent before the first request."),
    "retry_on": (_list_of(_STATUS), "Statuses to retry, such as 404, 5xx or 500-599."),
    "dead_letter_on": (_list_of(_STATUS), "Statuses after which a delivery is dead-lettered without a retry."),
    "table": (
        _TEXT,
        "The table: sql: schema.table or table; delta: a path, or s3://bucket/prefix; iceberg: namespace.table.",
    ),
    "key": (_list_of(_NAME), "The columns by which a row is found and updated."),
    "delivery_id": (_TEXT, "The column that gets the delivery's id."),
    "columns": (_mapping_of(_TEXT), "The columns with which a missing table is created, with their types."),
    "partition_by": (_list_of(_NAME), "Those columns by whose values the files of a created table are separated."),
    "maintain": (_DURATION, "How often the upkeep of the table is done, 1d to 30d."),
    "new_columns": (_one_of(NEW_COLUMNS), "What happens to members without a column."),
    "queue": (_NAME, "The queue from which consumers receive."),
    "partitions": (_whole(1, 256), "Partitions of each new topic."),
    "start_at": (_TEXT, "latest, earliest, or a time: where a new runner starts."),
    "offset_reset": (
        _one_of(("earliest", "latest", "fail")),
        "Where to continue if retention has deleted the next offset.",
    ),
    "mode": (_one_of(("offsets", "pop")), "offsets: read by offset. pop: receive messages as from a queue."),
    "group": (_TEXT, "The consumer group of mode: pop."),
    "visibility_timeout": (_DURATION, "How long a received message is invisible to others."),
    "mapping": (_ref("a mapping"), "How plain JSON messages become events."),
    "tombstones": (_one_of(("ignore", "deliver", "dead_letter")), "What happens to messages without a value."),
}

_REQUIRED: Final = {
    "a bus": ["source"],
    "a rule": ["bus", "pattern", "targets"],
    "a source": ["type"],
    "a target": ["type"],
    "a dead letter queue": ["type"],
    "a test": ["event"],
    "a webhook": ["signature", "connection"],
    "a delivery window": ["time_zone"],
    "a handshake": ["origin"],
}


def rule_file_schema() -> _Schema:
    """Return the JSON Schema (draft 7) of a rule file, with the fields of all installed types.

    A type whose package cannot be used is left out: `eventbridge plugins list` shows why.
    """
    definitions = {_key(what): _object(what, _FIELD_SCHEMAS[what]) for what in _FIELD_SCHEMAS}
    definitions["source"] = _typed_object("a source", {}, SOURCE_TYPES)
    definitions["target"] = _typed_object("a target", _TARGET_FIELDS, TARGET_TYPES)
    queue = {name: field for name, field in _TARGET_FIELDS.items() if name == "retry"}
    definitions["dead_letter_queue"] = _typed_object("a dead letter queue", queue, TARGET_TYPES)
    _add_forms(definitions)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "EventBridge rule file",
        **definitions.pop("rule_file"),
        "definitions": definitions,
    }


def settings_schema(kind: TargetType | SourceType | TransformType, *, is_built_in: bool) -> dict[str, _Schema]:
    """Return the JSON Schema of each setting of a type, by its name in rule files.

    That of a built-in type is in the vocabulary of this module, that of a plug-in is what its model says.
    """
    if is_built_in:
        found = {word: _TYPE_FIELDS.get(word, (_ANYTHING, "")) for word in kind.own_words}
        return {word: {"description": text, **schema} for word, (schema, text) in found.items()}
    try:
        schema = kind.fields.model_json_schema(ref_template="{model}")
    except Exception:  # of a field without a JSON form, or of the plug-in; `rules check` decides what is valid
        return {word: {} for word in kind.own_words}
    own: dict[str, _Schema] = {}
    for word in kind.own_words:
        if word in _SHARED:
            its, text = _TYPE_FIELDS[word]
            own[word] = {"description": text, **its}
        else:
            own[word] = _inlined(schema["properties"].get(word, {}), schema.get("$defs", {}))
            own[word].pop("title", None)
    return own


def required_settings(kind: TargetType | SourceType | TransformType) -> list[str]:
    """Return the settings of a type without which a rule file is refused, whatever else it has."""
    read: Any = getattr(kind, "read", None)
    if read is None:
        return [word for word in kind.own_words if word in kind.fields.model_fields and _is_required(kind, word)]
    return [word for word in kind.own_words if _refuses_without(kind, read, word)]


def _is_required(kind: TargetType | SourceType | TransformType, word: str) -> bool:
    return kind.fields.model_fields[word].is_required()


def _refuses_without(kind: TargetType | SourceType | TransformType, read: Any, word: str) -> bool:
    """Return whether the reader of a built-in type misses a field that is not given although all others are."""
    here = Location("", 1, 1)
    others = {each: Node(f"$.{each}", here, here, None, spoilt=True) for each in kind.own_words if each != word}
    what = "a target" if isinstance(kind, TargetType) else "a source"
    fields = Fields(Node("$", here, here, others), [], what)
    if isinstance(kind, TargetType):
        read(fields, Transform())
    else:
        read(fields)
    return word in fields.missing


#: The fields that sources of plug-ins share with built-in ones.
_SHARED: Final = ("topics", "start_at", "mapping")


def _inlined(schema: Any, definitions: Mapping[str, Any], depth: int = 8) -> Any:
    """Return a schema with its references replaced; a model that contains itself accepts anything below some depth."""
    if isinstance(schema, list):
        return [_inlined(each, definitions, depth) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"]], definitions, depth - 1) if depth else {}
    return {name: _inlined(each, definitions, depth) for name, each in schema.items()}


def _usable(registry: Registry[Any]) -> list[Any]:
    found = []
    for name in registry.names():
        with suppress(TypeUnusable):
            found.append(registry.get(name))
    return found


def _add_forms(definitions: dict[str, _Schema]) -> None:
    """Add the forms of plug-ins, and for each the schema of its settings."""
    kinds = _usable(TRANSFORM_TYPES)
    if not kinds:
        return
    transform = definitions["transform"]
    transform["properties"]["form"]["enum"] += [kind.name for kind in kinds]
    transform["allOf"] = [_condition("form", kind.name, {"value": _settings_object(kind)}) for kind in kinds]


def _condition(field: str, value: str, properties: Mapping[str, _Schema]) -> _Schema:
    """Return the schema that applies `properties` where a field has a value."""
    return {"if": {"properties": {field: {"const": value}}, "required": [field]}, "then": {"properties": properties}}


def _settings_object(kind: TransformType) -> _Schema:
    required = required_settings(kind)
    found: _Schema = {"type": "object", "properties": settings_schema(kind, is_built_in=False)}
    return found | ({"required": required} if required else {})


def _typed_object(what: str, common: Mapping[str, tuple[_Schema, str]], registry: Registry[Any]) -> _Schema:
    """Return the schema of a target, source or queue, whose fields are those of all types.

    A field that types define differently accepts what any of them does; for a plug-in's type, what this one does.
    """
    kinds = _usable(registry)
    own: dict[str, list[tuple[str, _Schema]]] = {}
    of_plug_ins = {}
    for kind in kinds:
        is_built_in = kind.name in registry.built_in
        settings = settings_schema(kind, is_built_in=is_built_in)
        if not is_built_in:
            of_plug_ins[kind.name] = settings
        for word, setting in settings.items():
            described = (setting.pop("description", ""), setting)
            if described not in own.setdefault(word, []) and word not in common:
                own[word].append(described)
    if what == "a dead letter queue":
        own = {word: settings for word, settings in own.items() if word not in NOT_FOR_QUEUES}
    joined = {
        word: (settings[0][1] if len(settings) == 1 else {"anyOf": [each for _, each in settings]}, settings[0][0])
        for word, settings in own.items()
        if settings
    }
    kind_names = (_one_of(kind.name for kind in kinds), f"The type of {what}.")
    found = _object(what, {"type": kind_names, **common, **joined})
    conditions = []
    for name, settings in of_plug_ins.items():
        if several := {word: each for word, each in settings.items() if len(own.get(word, ())) > 1}:
            conditions.append(_condition("type", name, several))
    return found | ({"allOf": conditions} if conditions else {})


def _object(what: str, fields: Mapping[str, tuple[_Schema, str]]) -> _Schema:
    properties = {
        name: {"description": text, "allOf": [schema]} if "$ref" in schema else {"description": text, **schema}
        for name, (schema, text) in fields.items()
    }
    found: _Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": _REQUIRED[what]} if what in _REQUIRED else {})
