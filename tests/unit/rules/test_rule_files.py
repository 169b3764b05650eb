"""Many files, one rule set: merging, defaults, what is wrong only between rules."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.event.json_document import Number
from eventbridge.rules import Bus, RetryPolicy, Rule, RuleSet, Transform
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import Owner
from eventbridge.sources.embedded.fields import EmbeddedFields
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http.fields import HttpFields

BUSES = "buses:\n  b: {source: {type: embedded}}\n  c: {source: {type: embedded}}\n"


def write(folder: Path, **files: str) -> Path:
    """Write files into a folder; `__` in a name stands for `/`."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def rule(name: str, bus: str = "b", more: str = "") -> str:
    """Return the line of a rule with a file target."""
    return f"  {name}: {{bus: {bus}, pattern: {{}}, targets: {{t: {{type: file, path: /x}}}}{more}}}\n"


def said_about(folder: Path) -> list[str]:
    """Return the errors, files named from the folder."""
    with pytest.raises(RuleFileError) as caught:
        load_rules(folder)
    return [str(error).replace(f"{folder}/", "") for error in caught.value.errors]


def test_files_of_all_folders_are_merged(tmp_path: Path) -> None:
    """Buses and rules may stand in any file, at any depth; a rule may name a bus of another file."""
    write(tmp_path, buses=BUSES, team__orders="rules:\n" + rule("r"), team__deep__more="rules:\n" + rule("s", "c"))
    (tmp_path / "z.yml").write_text("rules:\n" + rule("t"))
    (tmp_path / "notes.txt").write_text("no rule file")
    write(tmp_path, **{".hidden": "broken: [", ".git__x": "broken: ["})

    rules = load_rules(tmp_path)

    assert {"b", "c"} == set(rules.buses)
    assert {"r", "s", "t"} == set(rules.rules)


def test_every_field_reaches_the_model(tmp_path: Path) -> None:
    """A rule with every field of this version, and what becomes of it."""
    write(
        tmp_path,
        all="""\
owners:
  shop: {published: 200/s, pending: {max: 5000}, stored: 10GiB}
buses:
  orders:
    source: {type: embedded, topics: [new, old], partitions: 2, start_at: 2026-01-02T03:04:05+01:00}
    owner: shop
    retention: 90d
    max_backlog: 5000
    weights: {old: 3}
rules:
  big-orders:
    description: orders that the account team wants to see
    owner: accounts
    bus: orders
    runner: alone
    enabled: false
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 1000.50]}]}}
    priority: high
    concurrency: 4
    pool: nightly
    targets:
      crm:
        type: http
        url: http://crm.example:8080/hooks?team=a%20b
        allow_http: true
        connection: crm_hooks
        transform: {form: TEMPLATE, value: {id: $.data.id, n: 1.0}, template: '${id} ${n}', missing: error}
        timeout: 1.5s
        max_in_flight: 8
        retry:
          {policy: custom, max_retries: 5, initial_delay: 500ms, multiplier: 3, max_delay: 1m,
           jitter: 0.5, maximum_event_age: 2h}
        errors_tolerance: all
      whole:
        type: http
        url: https://crm.example/
        content_mode: binary
        timeout: {total: 20s, connect: 250ms}
      log:
        type: file
        path: /srv/orders.jsonl
        transform: {form: CONSTANT, value: {z: 1.0, a: null}, missing: null}
        retry: {policy: REGULAR_INTERVAL_RETRY}
""",
    )

    crm = HttpFields(
        name="crm",
        url="http://crm.example:8080/hooks?team=a%20b",
        allow_http=True,
        connection="crm_hooks",
        transform=Transform(
            form="TEMPLATE", value={"id": "$.data.id", "n": Number("1.0")}, template="${id} ${n}", missing="error"
        ),
        timeout_seconds=1.5,
        max_in_flight=8,
        retry=RetryPolicy(
            policy="custom",
            max_retries=5,
            initial_delay_seconds=0.5,
            multiplier=3.0,
            max_delay_seconds=60.0,
            jitter=0.5,
            maximum_event_age_seconds=7200.0,
        ),
    )
    whole = HttpFields(
        name="whole",
        url="https://crm.example/",
        content_mode="binary",
        timeout_seconds=20.0,
        connect_seconds=0.25,
    )
    log = FileFields(
        name="log",
        path="/srv/orders.jsonl",
        transform=Transform(form="CONSTANT", value={"z": Number("1.0"), "a": None}),
        retry=RetryPolicy.from_name("BACKOFF_RETRY"),
    )
    expected = Rule(
        name="big-orders",
        description="orders that the account team wants to see",
        owner="accounts",
        bus="orders",
        runner="alone",
        enabled=False,
        pattern={"type": ["order.placed"], "data": {"amount": [{"numeric": [">", Number("1000.50")]}]}},
        priority="high",
        concurrency=4,
        pool="nightly",
        targets={"crm": crm, "whole": whole, "log": log},
    )
    source = EmbeddedFields(topics=("new", "old"), partitions=2, start_at=datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC))
    bus = Bus(
        name="orders",
        owner="shop",
        source=source,
        retention_seconds=90 * 86_400.0,
        max_backlog=5_000,
        weights={"old": 3},
    )
    shop = Owner(published_per_second=200.0, pending_max=5_000, stored_bytes=10 * 1024**3)
    read = load_rules(tmp_path)
    assert RuleSet(buses={"orders": bus}, rules={"big-orders": expected}, quotas={"shop": shop}) == read
    assert read == RuleSet.from_json(read.to_json()) == RuleSet.from_lines(read.to_lines())


def test_defaults(tmp_path: Path) -> None:
    """A short rule gets the runner of its bus, medium priority, and the defaults of docs/reference/rule-file/."""
    write(tmp_path, a=BUSES + "rules:\n" + rule("r"))

    rules = load_rules(tmp_path)

    r, target = rules.rules["r"], rules.rules["r"].targets["t"]
    assert (
        r.runner,
        r.enabled,
        r.priority,
        r.concurrency,
        r.pool,
        r.pool_name,
    ) == ("b", True, "medium", None, None, "eventbridge.medium")
    assert (Transform(), RetryPolicy(), 10.0, 32) == (
        target.transform,
        target.retry,
        target.timeout_seconds,
        target.max_in_flight,
    )
    assert HttpFields(name="t").connect_seconds == 5.0
    assert Bus(name="b", source=EmbeddedFields(topics=("events",), partitions=4, start_at="latest")) == rules.buses["b"]


def test_http_target_whose_connection_holds_the_url(tmp_path: Path) -> None:
    """A target that names a connection may leave url out."""
    write(tmp_path, r=BUSES + "rules:\n" + rule("r").replace("type: file, path: /x", "type: http, connection: hooks"))

    assert load_rules(tmp_path).rules["r"].targets["t"] == HttpFields(name="t", connection="hooks")


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/hooks/orders?tenant=7&country_code=DE&signed=no",
        "https://discord.com/channels/webhooks",
        "https://hooks.slack.com.example/services/x",
        "https://slack.com/services/x",
    ],
)
def test_url_that_only_resembles_a_secret(tmp_path: Path, url: str) -> None:
    """Neither other parameters nor other hosts and paths are refused."""
    write(tmp_path, r=BUSES + "rules:\n" + rule("r").replace("type: file, path: /x", f"type: http, url: '{url}'"))

    assert load_rules(tmp_path).rules["r"].targets["t"].url == url


def test_name_defined_twice_in_two_files(tmp_path: Path) -> None:
    """Both places are named, and the second definition is checked all the same."""
    write(tmp_path, a=BUSES + "rules:\n" + rule("r"), b="rules:\n  r: {targets: {t: {type: fil}}}\n", c=BUSES)

    assert said_about(tmp_path) == [
        "b.yaml:2:3: $.rules.r: the rule 'r' is already defined at a.yaml:5:3. Rename or remove one of the two.",
        "b.yaml:2:3: $.rules.r: a rule needs the field bus. Add bus: ...",
        "b.yaml:2:3: $.rules.r: a rule needs the field pattern. Add pattern: ...",
        "b.yaml:2:27: $.rules.r.targets.t.type: unknown type 'fil' of a target. Did you mean file?",
        "c.yaml:2:3: $.buses.b: the bus 'b' is already defined at a.yaml:2:3. Rename or remove one of the two.",
        "c.yaml:3:3: $.buses.c: the bus 'c' is already defined at a.yaml:3:3. Rename or remove one of the two.",
    ]


def test_name_defined_twice_in_one_file(tmp_path: Path) -> None:
    """The second one does not silently win."""
    write(tmp_path, a=BUSES + "rules:\n" + rule("r") + rule("r", "c"))

    assert said_about(tmp_path) == [
        "a.yaml:6:3: $.rules.r: duplicate key 'r' in this mapping, first used at a.yaml:5:3. "
        "Remove one of them, or merge the two."
    ]


def test_runner_consumes_one_bus(tmp_path: Path) -> None:
    """Two rules of two buses cannot share a runner, whether it is named or comes by default."""
    write(
        tmp_path,
        a=BUSES + "rules:\n" + rule("r") + rule("s", "c", ", runner: b") + rule("t", "c", ", runner: x"),
        b="rules:\n" + rule("u", "b", ", runner: x"),
    )

    why = "and a runner can consume only one bus. Name another runner, or remove runner: to use the runner of the bus."
    assert [
        f"a.yaml:6:74: $.rules.s.runner: the runner 'b' already consumes the bus 'b', for the rule 'r', {why}",
        f"b.yaml:2:74: $.rules.u.runner: the runner 'x' already consumes the bus 'c', for the rule 't', {why}",
    ] == said_about(tmp_path)


def test_rules_agree_on_the_slots_of_a_shared_pool(tmp_path: Path) -> None:
    """Two rules that name one pool cannot give it different numbers of slots."""
    rules = rule("r", "b", ", pool: p, concurrency: 2") + rule("s", "b", ", pool: p, concurrency: 3") + rule(
        "t", "b", ", pool: p"
    )  # fmt: skip
    write(tmp_path, a=BUSES + "rules:\n" + rules)

    assert said_about(tmp_path) == [
        "a.yaml:6:88: $.rules.s.concurrency: the rule 'r' gives the pool 'p' 2 slots, not 3. "
        "Write the same concurrency in every rule of the pool, or only in one."
    ]


def test_bus_of_a_file_that_is_no_yaml_is_not_missed(tmp_path: Path) -> None:
    """A file that cannot be read may define the bus: no error is reported that would vanish with the first."""
    write(tmp_path, a="buses: {b: [", b="rules:\n" + rule("r"))

    assert len(said_about(tmp_path)) == 1


def test_missing_folder(tmp_path: Path) -> None:
    """A missing folder is an error, not an empty rule set."""
    said = said_about(tmp_path / "rules")

    assert [
        f"{tmp_path}/rules:1:1: $: the folder of rule files does not exist. "
        "Create it, or set EVENTBRIDGE_RULES_FOLDER to the folder of your rule files."
    ] == said


def test_folder_without_rule_files(tmp_path: Path) -> None:
    """An empty folder is an error: it would mean that every rule was removed."""
    said = said_about(tmp_path)

    assert [f"{tmp_path}:1:1: $: there is no rule file below this folder. Write one that ends in .yaml."] == said


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """An existing file that cannot be read is an error: its rules must not vanish."""
    (tmp_path / "r.yaml").symlink_to("/proc/self/mem")

    assert said_about(tmp_path) == ["r.yaml:1:1: $: the file cannot be read: Input/output error. Make it readable."]


def test_shipped_rules_are_what_the_demo_needs() -> None:
    """At least 12 rules on one runner, of many operators, all forms of transform, for every path of the receiver."""
    rules = load_rules(Path(__file__).parents[3] / "include" / "rules")

    targets = [target for rule in rules.enabled().values() for target in rule.targets.values()]
    text = rules.to_json()
    assert len(rules.enabled()) >= 12
    assert rules.runners() == {"flights": "flights"}
    assert rules.buses["flights"].source.start_at == "earliest"
    assert {"high", "medium", "low"} == {rule.priority for rule in rules.rules.values()}
    assert rules.pools() == {"movement-logs": 2, "eventbridge.rule.cancellations": 2}
    assert {"ORIGINAL", "CONSTANT", "JSONPATH", "TEMPLATE"} == {target.transform.form for target in targets}
    assert {"healthy", "slow", "flaky", "bad", "gone", "hang"} == {
        target.url.split("/")[3] for target in targets if target.type == "http"
    }
    operators = [
        "prefix",
        "suffix",
        "equals-ignore-case",
        "wildcard",
        "contains",
        "regex",
        "anything-but",
        "numeric",
        "exists",
        "all",
        "$or",
        "$not",
    ]
    assert [operator for operator in operators if f'"{operator}":' not in text] == []
