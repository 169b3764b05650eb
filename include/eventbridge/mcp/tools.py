"""Defines the tools: what an agent reads about each, the call of the API behind it, and the bounds of its result."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator

from eventbridge.backtest.report import BacktestReport
from eventbridge.errors import EventError, UserError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.mcp.api import BACKTEST_SECONDS, MAX_BACKTESTED, MAX_CANDIDATE, MAX_SAMPLES

#: The maximum size of a result, in characters of JSON, and of each text in it. An agent has room for little more.
MAX_RESULT: Final = 100_000
MAX_TEXT: Final = 4_000
#: The numbers of items to which lists are cut in turn, until a result is small enough.
_CUTS: Final = (200, 100, 50, 20, 10, 5)
#: The maximum and the default number of items on one page of a list.
MAX_ITEMS: Final = 100
_ITEMS: Final = 20
#: The maximum number of wrong arguments that an error names, and the maximum length of each.
_MAX_ERRORS: Final = 5
_ERROR_CHARACTERS: Final = 300

_Schema = dict[str, Any]

_LIMIT: _Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_ITEMS,
    "default": _ITEMS,
    "description": "The maximum number of items on one page.",
}
_CURSOR: _Schema = {"type": "string", "description": "`next` of the previous page. Leave it out for the first page."}
_JSON: _Schema = {"type": ["object", "string"]}


@dataclass(frozen=True)
class AgentTool:
    """A tool, which makes the call of the API with the id `operation`.

    Its arguments are those of the call, except that `arguments` replaces or adds schemas, and `omitted` are left out.
    An argument that is neither in the path nor in the query of the call is a member of its body. `page` is the member
    of the result that `limit` and `cursor` refer to.
    """

    name: str
    title: str
    operation: str
    description: str
    arguments: Mapping[str, _Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    page: str = ""


_PAGES = "Newest first. If `next` is not null, there is more: send it as `cursor`."
_HIDDEN = (
    'Without the right to see payloads, a text that may quote an event is replaced by one that begins with "hidden:".'
)

TOOLS: Final = (
    AgentTool(
        "get_status",
        "Status of the installation",
        "get_status",
        """Return the state of the whole installation: begin here when asked whether events arrive and are delivered.

Members of the result that matter most:
- `partitions` and `flows`: the lag of each runner (events on the bus that it has not read yet) and its rates.
- `targets`: only those with deliveries held back, each with its state, reason and since when. A target whose
  deliveries are dead-lettered at once is not among them: see `list_targets` and `count_dead_letters`.
- `pending`: deliveries that wait for a retry or are on hold, by rule and target.
- `rules_on_hold`, `stalled`, `ingestion_stop`, `errors`: what keeps rules, runners or all runners from working.
- `batches`: the newest batches and their states.
Times are in UTC, durations in seconds.""",
        arguments={
            "batches": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_ITEMS,
                "default": 5,
                "description": "The number of newest batches to return.",
            }
        },
    ),
    AgentTool(
        "list_targets",
        "List targets",
        "list_targets",
        """List every target of every rule with its state (`ok`, `failing`, `degraded`, `paused`, `disabled`, ...).

Use it to find targets that fail. `failing_since` is the first failed attempt since the last good one; it is null if
the last attempt was good. `since` and `reason` belong to the state, and `waiting` counts pending deliveries. A target
is `failing` if each attempt since then failed and deliveries wait for a retry.""",
        page="targets",
    ),
    AgentTool(
        "list_rules",
        "List rules and buses",
        "list_rules",
        """List the buses and the rules in force, with their defaults filled in.

Use it to learn the names of buses, rules and targets, and what each rule matches (`pattern`, `where`) and sends.""",
        page="rules",
    ),
    AgentTool(
        "get_rule",
        "Get one rule",
        "get_rule",
        """Return one rule in force, with its defaults filled in: pattern, targets, transforms and retries.""",
        arguments={"rule": {"type": "string", "pattern": "^[^/]+$", "description": "The name of the rule."}},
    ),
    AgentTool(
        "list_buses",
        "List buses with their lag",
        "list_buses",
        """List the buses with their sources and, by partition and runner, the lag: events that are not read yet.

Use it if `get_status` shows that a runner lags or is stalled, or if its lists are cut.""",
        page="buses",
    ),
    AgentTool(
        "list_event_types",
        "List event types",
        "list_schemas",
        """List the types of events that were seen on each bus. Use it to find what a rule can match.""",
        page="schemas",
    ),
    AgentTool(
        "describe_event_type",
        "Fields of an event type",
        "list_type_schemas",
        """Return the fields of an event type as they occur on each bus: JSON types, how often they are null, and, with
the right to see payloads, examples. Use it before you write a pattern or a transform.""",
        page="schemas",
    ),
    AgentTool(
        "find_events",
        "Find events",
        "list_events",
        f"""Find valid events in the archive by bus, attributes, status, rule, condition and time of landing. {_PAGES}

Returns ids and attributes, not payloads. One call reads at most 50 files and 100,000 events, or 20,000 with a
`condition`, so a page may be empty although `next` is set: continue, or choose a shorter time range. Then use
`explain_event` with an id. `status` dead_lettered finds events with a failed delivery, unmatched those that no rule
matched. `condition` is a JSON path and what its value must be: `$.data.amount > 100`, `$.data.city = "Bern"`. Other
filters compare whole values. `subject` and `condition` need the right to see payloads.""",
        page="events",
    ),
    AgentTool(
        "explain_event",
        "Explain what happened to an event",
        "get_event",
        f"""Trace one event: its place on the bus, which rules matched it, which condition of the others failed, and
every delivery and attempt. Use it for "why did event X not reach target Y?".

In `events[]`:
- `status` is `valid`, `duplicate` or `malformed`; no rule is evaluated for a malformed event.
- `rules[].matched` is the result of the pattern, and `rules[].conditions[]` has `met`, `path` and `message` of each.
- `deliveries[].state` is `delivered`, `dead_lettered`, `scheduled` (retry at `due_at`), `on_hold` or `in_progress`.
- `steps[]` is the history in order of time: attempts with the HTTP `code`, `reason`, `detail` and `duration_ms`.
`not_landed` are messages on the bus that no runner has read yet. `notes` state the limits of the search.
If no event has the id, it is taken for the id of a delivery (the header `webhook-id` that a target receives).
{_HIDDEN}""",
    ),
    AgentTool(
        "count_dead_letters",
        "Count dead letters by reason",
        "list_dead_letter_groups",
        """Count dead letters by rule, target, reason and beginning of the error. Use it first when deliveries failed.

A dead letter is a delivery that EventBridge stopped trying, with the reason. Counts are of one page of at most `limit`
dead letters, newest first; if `next` is not null, send it as `cursor`, and add the counts.""",
        arguments={"limit": _LIMIT | {"maximum": 500, "default": 500}},
        page="groups",
    ),
    AgentTool(
        "list_dead_letters",
        "List dead letters",
        "list_dead_letters",
        f"""List dead letters, each with its name, event id, rule, target, reason and error. {_PAGES}

Use `get_dead_letter` with a `name` for the event, the request and every attempt. {_HIDDEN}""",
        omitted=("whole",),
        page="dead_letters",
    ),
    AgentTool(
        "get_dead_letter",
        "Get one dead letter",
        "get_dead_letter",
        f"""Return one dead letter with its event, its request and every attempt: HTTP code, error and response.

{_HIDDEN}""",
    ),
    AgentTool(
        "test_pattern",
        "Test a pattern on an event",
        "test_pattern",
        """Test whether a pattern matches an event, and which condition fails. Nothing is sent or stored.

Give the event as `event`, or as `event_id` of an archived event, which needs the right to see payloads. Give a
`pattern`, or a `rule` to test its own pattern, or both to test a new pattern for the rule. With a rule, `payloads` has
the request that each of its targets would get. SQL conditions (`where`) are not evaluated.

A pattern is a JSON object that looks like the event, with a list of accepted values wherever the event has a value.
Keys are ANDed, values of a list are ORed: {"type": ["order.placed"], "data": {"amount": [{"numeric": [">", 100]}]}}.
In place of a value: {"prefix": "a"}, {"suffix": "z"}, {"contains": "b"}, {"wildcard": "a*z"}, {"regex": "a.+"},
{"equals-ignore-case": "A"}, {"numeric": [">", 1, "<=", 5]}, {"exists": true}, {"cidr": "10.0.0.0/8"},
{"anything-but": ["x"]}, {"all": [..., ...]}. Beside keys: "$or": [pattern, pattern]. At the top: "$not": pattern.
The empty pattern {} matches every event. Types matter: ["1"] does not match 1.""",
        arguments={
            "rule": {"type": "string", "description": "The name of a rule in force."},
            "pattern": _JSON | {"description": "The pattern, as a JSON object or its text."},
            "event": _JSON
            | {
                "description": "A CloudEvent in structured JSON, as an object or its text: "
                '{"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed", "data": {}}.'
            },
            "event_id": {"type": "string", "description": "Instead of `event`, the id of an archived event."},
        },
    ),
    AgentTool(
        "get_rule_file_schema",
        "JSON Schema of rule files",
        "get_rule_file_schema",
        """Return the JSON Schema of rule files: every field of buses, rules, targets, transforms and retries, with what
it means. Use it before you write a rule file with more than the fields that `check_rules` shows.""",
    ),
    AgentTool(
        "check_rules",
        "Check a rule file",
        "check_rule_file",
        """Check the text of a rule file as if it were saved under its name beside the other rule files, and run the
tests of its rules. Nothing is written. Always check a rule file before you hand it to the user.

Returns `errors`, each with line, column, path, message and remedy, or counts and `warnings` if there are none.
A rule file is YAML:
rules:
  big-orders:                  # the name of the rule
    bus: orders                # a bus of any rule file
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 100]}]}}
    targets:
      accounts: {type: http, url: "https://example.com/hook"}""",
        arguments={
            "file": {
                "type": "string",
                "maxLength": 500,
                "default": "new-rules.yaml",
                "description": "The name below the folder of rule files. An existing name stands for the changed file.",
            },
            "content": {"type": "string", "maxLength": 1_048_576, "description": "The text of the file, in YAML."},
        },
        required=("content",),
    ),
    AgentTool(
        "backtest_rules",
        "Backtest rules on recent events",
        "backtest_rules",
        f"""Run rules over archived events, and report how many they match, by hour, and what their targets would
receive. Nothing is sent. Use it for "would this rule match yesterday's events?" before a rule goes live.

Reads at most {MAX_BACKTESTED:,} events within {BACKTEST_SECONDS:g} seconds: a longer range is refused with its number
of events. Rules with SQL, or with a transform whose cost has no bound, are refused. `rules[].matched` is the number of
matches, `targets[].failed` the number of events that the transform cannot render. `targets[].samples` has matched
events and outputs, where `arrived_at` is in microseconds since 1970.
The text of a rule file needs the right to see payloads, and so do samples. The text for a pattern alone:
rules: {{try: {{bus: orders, pattern: {{data: {{order: [17]}}}}, targets: {{t: {{type: http, url: "https://a.example"}}}}}}}}""",
        arguments={
            "candidate": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CANDIDATE,
                "description": "A rule in force, RULE@VERSION for an older version, or the text of a rule file (YAML).",
            },
            "from": {
                "type": "string",
                "default": "1h",
                "description": "The beginning of the range: ISO 8601 (UTC without an offset), or an age such as 24h.",
            },
            "to": {"type": "string", "description": "The end of the range, given like `from`; default: now."},
            "bus": {"type": "string", "description": "Only rules of this bus; for a text with rules of several buses."},
            "samples": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_SAMPLES,
                "default": 3,
                "description": "The maximum number of outputs to return for each target.",
            },
        },
        required=("candidate",),
    ),
)


@dataclass(frozen=True)
class ApiCall:
    """A call of the API; `content` is its body."""

    method: str
    path: str
    query: Mapping[str, Any]
    content: bytes


class ToolCalls:
    """A tool with its schemas, which turns arguments into a call of the API."""

    def __init__(self, tool: AgentTool, description: Mapping[str, Any]) -> None:
        self.tool = tool
        self._method, self._path, operation = _operation(description, tool.operation)
        parameters = {each["name"]: each for each in operation.get("parameters", ())}
        self._in_path = {name for name, each in parameters.items() if each["in"] == "path"}
        self._in_query = parameters.keys() - self._in_path
        schemas = {name: _argument_schema(each) for name, each in parameters.items() if name not in tool.omitted}
        schemas |= {name: known for name, known in (("limit", _LIMIT), ("cursor", _CURSOR)) if name in schemas}
        schemas |= tool.arguments
        self.input_schema: _Schema = {
            "type": "object",
            "properties": schemas,
            "required": [*sorted(self._in_path), *tool.required],
            "additionalProperties": False,
        }
        self.output_schema = _output_schema(tool, description, operation)
        self._validator = Draft202012Validator(self.input_schema)

    def call(self, arguments: Mapping[str, Any]) -> ApiCall:
        """Return the call for some arguments. Raises UserError if they do not match the schema."""
        self._check(arguments)
        schemas = self.input_schema["properties"]
        defaults = {name: each["default"] for name, each in schemas.items() if "default" in each}
        values = defaults | {name: _value(name, each, schemas[name]) for name, each in arguments.items()}
        path = self._path
        for name in self._in_path:
            path = path.replace(f"{{{name}}}", values[name])
        query = {name: _in_url(each) for name, each in values.items() if name in self._in_query}
        rest = {name: each for name, each in values.items() if name not in self._in_path | self._in_query}
        content = write_document(rest).encode() if self._method == "POST" else b""
        return ApiCall(self._method, path, query, content)

    def _check(self, arguments: Mapping[str, Any]) -> None:
        errors = [
            f"{each.json_path.removeprefix('$').removeprefix('.') or 'arguments'}: {each.message}"[:_ERROR_CHARACTERS]
            for each, _ in zip(self._validator.iter_errors(arguments), range(_MAX_ERRORS), strict=False)
        ]
        if errors:
            known = ", ".join(self.input_schema["properties"]) or "none"
            raise UserError(f"{'; '.join(errors)}. The arguments of {self.tool.name}: {known}")


def result_of(body: bytes, page: str = "") -> dict[str, Any]:
    """Return the document in a response, its long texts cut.

    If it is too large, its lists are cut too, except the member `page`, and the member `cut` says so. Raises UserError
    if it is too large nevertheless.
    """
    document: dict[str, Any] = _cut(json.loads(body))
    size = _size(document)
    if size <= MAX_RESULT:
        return document
    for most in _CUTS:
        lengths: dict[str, int] = {}
        shorter = {
            name: each if name == page else _shorten(each, most, name, lengths, is_top=bool(page))
            for name, each in document.items()
        }
        if lengths and _size(shorter) <= MAX_RESULT:
            cut = ", ".join(f"{name} had {count:,}" for name, count in sorted(lengths.items()))
            return shorter | {"cut": f"Lists have only their first {most} items, to keep the result small: {cut}."}
    raise UserError(
        f"the result has {size:,} characters, and a result may have {MAX_RESULT:,}. Ask for less: a smaller `limit`, a "
        "shorter time range, or one name. The `eventbridge` command line has no such limit"
    )


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _shorten(value: Any, most: int, name: str, lengths: dict[str, int], *, is_top: bool = False) -> Any:
    """Return a value with at most `most` items in each list and, if `is_top`, in the value itself if it is an object.

    `lengths` gets the greatest length of the cut ones, by name.
    """
    if isinstance(value, list) or (is_top and isinstance(value, dict)):
        if len(value) > most:
            lengths[name] = max(len(value), lengths.get(name, 0))
        value = value[:most] if isinstance(value, list) else dict(list(value.items())[:most])
    if isinstance(value, dict):
        return {key: _shorten(each, most, key, lengths) for key, each in value.items()}
    return [_shorten(each, most, name, lengths) for each in value] if isinstance(value, list) else value


def error_text(body: bytes, headers: Mapping[bytes, bytes], remedies: Mapping[str, str]) -> str:
    """Return what was wrong with a call, and what to do, from the problem document in its response.

    `remedies` holds, by code, the remedies to give instead of the API's; "" means that the error itself has it.
    """
    problem = json.loads(body)
    parts = [f"{problem['code']}: {problem['detail']}"]
    parts += [
        " ".join(filter(None, (f"{each['location']}: {each['message']}.", each.get("remedy"))))
        for each in problem.get("errors", ())
        if each["message"] not in problem["detail"]
    ]
    if b"retry-after" in headers:
        parts.append(f"Retry-After is {headers[b'retry-after'].decode()} seconds.")
    else:
        parts.append(remedies.get(problem["code"], problem["remedy"]))
    return "\n".join(_cut([each for each in parts if each]))


def _cut(value: Any) -> Any:
    """Return a JSON value whose long texts are cut."""
    if isinstance(value, str):
        more = len(value) - MAX_TEXT
        return value if more <= 0 else f"{value[:MAX_TEXT]}... ({more:,} more characters)"
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    return [_cut(each) for each in value] if isinstance(value, list) else value


def _value(name: str, value: Any, schema: _Schema) -> Any:
    """Return an argument; JSON given as text becomes an object, with its numbers as written."""
    _check_text(name, value)
    if schema["type"] != _JSON["type"] or not isinstance(value, str):
        return value
    try:
        return parse_document(value)
    except EventError as error:
        raise UserError(f"{name}: this text is not a JSON object: {error}") from None


def _check_text(name: str, value: Any) -> None:
    """Raise UserError if a text cannot be sent, because it holds half of a character."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise UserError(f"{name}: the text holds half of a surrogate pair, or is nested too deeply") from None


def _in_url(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _operation(description: Mapping[str, Any], operation_id: str) -> tuple[str, str, _Schema]:
    """Return the method, the path and the description of the call with an id."""
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] == operation_id:
                return method.upper(), path, operation
    raise AssertionError(f"the API has no call {operation_id}")


def _argument_schema(parameter: Mapping[str, Any]) -> _Schema:
    """Return the schema of a parameter, which agents leave out instead of sending null."""
    schema = dict(parameter["schema"])
    for each in schema.pop("anyOf", ()):
        if each["type"] != "null":
            schema |= each
    schema.pop("title", None)
    if parameter["in"] == "path":
        schema["minLength"] = 1
    return schema


_REFERENCE: Final = "#/components/schemas/"


def _output_schema(tool: AgentTool, description: Mapping[str, Any], operation: Mapping[str, Any]) -> _Schema:
    """Return the schema of a result, with the definitions that it refers to."""
    if tool.operation == "backtest_rules":
        (schema,), definitions = msgspec.json.schema_components([BacktestReport], ref_template="#/$defs/{name}")
        return dict(definitions[schema["$ref"].rpartition("/")[2]]) | {"$defs": definitions}
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    all_schemas = description["components"]["schemas"]
    names = list(dict.fromkeys(_references(schema, all_schemas)))
    if names:
        schema = all_schemas[names[0]] | {"$defs": {name: all_schemas[name] for name in names[1:]}}
    text = json.dumps(_untitled(schema)).replace(_REFERENCE, "#/$defs/")
    untitled: _Schema = json.loads(text)
    return untitled


def _untitled(schema: Any) -> Any:
    """Return a schema without titles, which only repeat names, and which an agent would have to read."""
    if isinstance(schema, dict):
        return {name: _untitled(each) for name, each in schema.items() if name != "title" or not isinstance(each, str)}
    return [_untitled(each) for each in schema] if isinstance(schema, list) else schema


def _references(schema: Any, all_schemas: Mapping[str, Any], known: Collection[str] = ()) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to, directly or through others."""
    if isinstance(schema, dict):
        name = str(schema.get("$ref", "")).removeprefix(_REFERENCE)
        if name and name not in known:
            yield name
            yield from _references(all_schemas[name], all_schemas, {*known, name})
        for each in schema.values():
            yield from _references(each, all_schemas, known)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each, all_schemas, known)
