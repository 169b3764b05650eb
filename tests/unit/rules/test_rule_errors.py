"""Every class of error in a rule file: rule_errors.txt holds what is written and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.rules.types import fields_of
from eventbridge.rules.vocabulary import FIELDS

BUS = "buses: {b: {source: {type: embedded}}}\n"
RULE = f"{BUS}rules:\n  r:\n    bus: b\n"

#: What is written around a case, by the word after `===`.
AROUND = {
    "file": f"{BUS}%s\n",
    "bus": "buses:\n  b:\n    %s\n",
    "rule": f"{BUS}rules:\n  r: {{bus: b, pattern: {{}}, targets: {{t: {{type: file, path: /x}}}}, %s}}\n",
    "pattern": f"{RULE}    targets: {{t: {{type: file, path: /x}}}}\n    pattern:\n      %s\n",
    "target": f"{RULE}    pattern: {{}}\n    targets:\n      t: {{%s}}\n",
    "http": f"{RULE}    pattern: {{}}\n    targets:\n      t: {{type: http, %s}}\n",
    "file_target": f"{RULE}    pattern: {{}}\n    targets:\n      t: {{type: file, path: /x, %s}}\n",
}


def cases() -> list[tuple[str, str, list[str]]]:
    """Return (where, what is written, what is said) of each case."""
    text = (Path(__file__).parent / "rule_errors.txt").read_text()
    parts = [part.partition("\n") for part in text.split("=== ")[1:]]
    split = [(where, *rest.split("\n---\n")) for where, _, rest in parts]
    return [(where, written, said.strip().splitlines()) for where, written, said in split]


def said_about(folder: Path, content: str) -> list[str]:
    """Return the errors in one file, without its name: the same with a cache, of which no error comes or goes."""
    file = folder / "r.yaml"
    file.write_text(content)
    said = []
    for cache in (None, folder / ".cache", folder / ".cache"):
        with pytest.raises(RuleFileError) as caught:
            load_rules(folder, cache=cache)
        said.append([str(error).replace(f"{file}:", "") for error in caught.value.errors])
    assert said[0] == said[1] == said[2]
    return said[0]


@pytest.mark.parametrize(("where", "written", "said"), cases(), ids=[written for _, written, _ in cases()])
def test_rule_error(tmp_path: Path, where: str, written: str, said: list[str]) -> None:
    """Each error is reported with line, column, path and remedy, and without consequences of its own."""
    assert said == said_about(tmp_path, AROUND[where] % written)


@pytest.mark.parametrize(
    ("what", "field"), [(what, field) for what in FIELDS if what != "a rule file" for field in fields_of(what)]
)
def test_field_of_this_version_is_read(tmp_path: Path, what: str, field: str) -> None:
    """No field is let through unread: a value of the wrong kind is an error in every one of them."""
    holders = (
        "source",
        "retry",
        "transform",
        "pattern",
        "targets",
        "batch",
        "timeout",
        "dead_letter_queue",
        "expect",
        "pending",
        "event",
        "outputs",
        "webhooks",
        "mapping",
        "weights",
        "headers",
        "signature",
        "handshake",
    )
    wrong = {field: 1 if field in holders or what.endswith("expectation") else {"x": 1}}
    transform = {"form": "JSONPATH" if field == "value" else "TEMPLATE"}
    target = {"type": "file" if field in ("path", "retry", "transform") or what != "a target" else "http"}
    if what == "a dead letter queue":
        target["dead_letter_queue"] = {"type": "file" if field in ("path", "retry") else "http"} | wrong  # type: ignore[assignment]
    if what == "a transform":
        target["transform"] = transform | wrong  # type: ignore[assignment]
    if what == "a timeout":
        target |= {"type": "http", "timeout": wrong}  # type: ignore[dict-item]
    if what == "a delivery window":
        target["deliver_between"] = wrong  # type: ignore[assignment]
    if what in ("a batch", "a signature", "a handshake"):
        given = {field: 1} if what == "a signature" else wrong
        target |= {"type": "http", what.removeprefix("a "): given}  # type: ignore[dict-item]
    if what == "a retry policy":
        target["retry"] = {"policy": "custom"} | wrong  # type: ignore[assignment]
    expect: dict[str, object] = {
        "an expectation": wrong,
        "a field expectation": {"fields": {"$.data.a": wrong}},
        "bounds": {"matches": wrong},
    }.get(what, {})  # type: ignore[assignment]
    tests = {"tests": [wrong | ({} if field == "event" else {"event": {"type": "a"}})]} if what == "a test" else {}
    rule = {"targets": {"t": target | (wrong if what == "a target" else {})}} | (
        wrong if what == "a rule" else {"expect": expect} | tests
    )
    if what == "pending deliveries":
        rule["pending"] = wrong
    runner = (
        wrong if what == "a runner" else {"mode": "streaming", "streaming": wrong} if what == "streaming mode" else {}
    )
    source = {"type": "kafka", "mapping": wrong} if what == "a mapping" else {}
    bus = {"source": wrong if what == "a source" else source} | (wrong if what == "a bus" else {})
    if what == "a webhook":
        bus["webhooks"] = {"h": wrong}
    if what == "a webhook's mapping":
        bus["webhooks"] = {"h": {"mapping": wrong}}

    # JSON is YAML
    written = {"owners": {"o": wrong if what == "an owner" else {}}, "buses": {"b": bus}, "runners": {"b": runner}}
    said = said_about(tmp_path, json.dumps(written | {"rules": {"r": rule}}))
    assert any(f".{field}: " in error for error in said)


def test_all_errors_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    """One run reports everything, in the order of files and lines, a file that is not YAML included."""
    (tmp_path / "a.yaml").write_text(
        f"{BUS}rules:\n  r: {{bus: b, pattern: {{}}, targets: {{t: {{type: fil}}}}, x: 1}}\n"
    )
    (tmp_path / "b.yml").write_text("rules:\n\tr: {}\n")
    (tmp_path / "c.yaml").write_text("rules:\n  s: 1\n")

    with pytest.raises(RuleFileError) as caught:
        load_rules(tmp_path)

    locations = [(Path(m.file).name, m.line, m.column) for m in caught.value.errors]
    assert locations == [("a.yaml", 3, 48), ("a.yaml", 3, 55), ("b.yml", 2, 1), ("c.yaml", 2, 6)]
    assert str(caught.value).startswith("4 errors in the rule files:\n")


def test_no_secret_is_shown() -> None:
    """What looks like a credential is refused without being repeated."""
    text = (Path(__file__).parent / "rule_errors.txt").read_text()

    assert text.count("hunter2") == 20
    assert not any("hunter2" in line for _, _, said in cases() for line in said)
