"""Types of targets: those of a package are read, described, frozen and opened as the built-in ones."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from installed_package import install

from eventbridge.errors import PackageMissing, RuleFileError
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.frozen import content_of
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import as_target
from eventbridge.rules.types import CHUNK_SIZES, TARGET_TYPES
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request

BUS = "buses: {b: {source: {type: embedded}}}\n"

#: A type of a package: a target that keeps what it is given in a list.
LISTED = """
from typing import Literal
from pydantic import Field
from eventbridge.plugins import Result, Seconds, TargetFields, TargetType

class ListedFields(TargetFields):
    type: Literal["listed"] = "listed"
    list_name: str = Field(pattern="^[a-z]+$", description="the name of a list, in lower-case letters")
    wait: Seconds = Field(1.0, gt=0)
    keys: tuple[str, ...] = ()

def opened(opening):
    if opening.target.list_name == "locked":
        raise opening.error("names a list that is locked", "Name another")
    return List()

class List:
    def send(self, requests):
        return {each.delivery_id: Result.accept() for each in requests}

LISTED = TargetType("listed", ListedFields, "acme_lists:opened")
"""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that has the target type `listed`."""
    install(tmp_path / "site", monkeypatch, "acme_lists", LISTED, {"eventbridge.targets": "listed = acme_lists:LISTED"})


def read(folder: Path, target: str, **options: object) -> RuleSet:
    """Read a rule file with one target, which is written at line 7, column 13."""
    folder.mkdir(exist_ok=True)
    text = f"{BUS}rules:\n  r:\n    bus: b\n    pattern: {{}}\n    targets:\n      t:    {{{target}}}\n"
    (folder / "r.yaml").write_text(text)
    return load_rules(folder, **options)  # type: ignore[arg-type]


def said_about(folder: Path, target: str) -> list[str]:
    """Return the errors of a rule file with one target."""
    with pytest.raises(RuleFileError) as caught:
        read(folder, target)
    return [str(error).replace(f"{folder}/r.yaml:", "") for error in caught.value.errors]


@pytest.mark.usefixtures("listed")
def test_a_type_of_a_package_is_read_and_frozen(tmp_path: Path) -> None:
    """Its fields and those of every target are read, also from the cache and of a dead letter queue, and survive."""
    queue = "dead_letter_queue: {type: listed, list_name: q}"
    text = f"type: listed, list_name: a, wait: 2m, keys: [x, '5'], rate: 10/s, {queue}"
    rules = [read(tmp_path / "rules", text, cache=tmp_path / "cache") for _ in range(2)]
    target = rules[0].rules["r"].targets["t"]

    assert (target.type, target.rate_per_second) == ("listed", 10.0)
    assert (target.list_name, target.wait, target.keys) == ("a", 120.0, ("x", "5"))  # type: ignore[attr-defined]
    assert target.dead_letter_queue is not None
    assert (target.dead_letter_queue.name, target.dead_letter_queue.content_mode) == ("t/dead_letter_queue", "data")
    assert target.dead_letter_queue.list_name == "q"  # type: ignore[attr-defined]
    assert rules[0] == rules[1] == RuleSet.from_json(rules[0].to_json())


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "7:7: $.rules.r.targets.t: a target needs the field list_name. Add list_name: ..."),
        (
            "list_name: ''",
            "{}.list_name: list_name: string should match pattern '^[a-z]+$'. Expected: the name of a list",
        ),
        ("list_name: 5", "{}.list_name: list_name: input should be a valid string. Expected: the name of a list"),
        ("list_name: a, keys: [a, 5]", "{}.keys[1]: keys: input should be a valid string. Correct it."),
        ("list_name: a, wait: 0s", "{}.wait: wait: input should be greater than 0. Correct it."),
        ("list_name: a, wait: soon", "{}.wait: wait: 'soon' is"),
        ("list_name: a, lst_name: b", "{}.lst_name: unknown field 'lst_name' of a target. Did you mean list_name?"),
        ("list_name: a, url: https://x.example", "{}.url: a listed target has no url. Remove it."),
        ("list_name: a, token: hush", "{}.token: 'token' looks like a secret"),
        ("list_name: a, rate: fast", "{}.rate: rate must be a number of deliveries"),
    ],
)
def test_its_errors_are_reported_at_their_place(tmp_path: Path, target: str, said: str) -> None:
    """Each with line, path and remedy, as for built-in types."""
    (error,) = said_about(tmp_path / "rules", f"type: listed, {target}".rstrip(", "))

    assert error.startswith("7:")
    assert said.format("$.rules.r.targets.t") in error


@pytest.mark.usefixtures("listed")
def test_an_unknown_type_is_reported_with_those_of_packages(tmp_path: Path) -> None:
    """A misspelt type of a package gets it as the suggestion."""
    assert said_about(tmp_path / "rules", "type: listd, list_name: a, timeout: 5s") == [
        "7:20: $.rules.r.targets.t.type: unknown type 'listd' of a target. Did you mean listed?",
    ]
    assert TARGET_TYPES.names() == [
        "http",
        "file",
        "kafka",
        "rocketmq",
        "s3",
        "airflow",
        "sql",
        "delta",
        "iceberg",
        "queue",
        "listed",
    ]


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("import nowhere", "raised ModuleNotFoundError: No module named 'nowhere', when it was imported"),
        ("raise SystemExit(3)", "raised SystemExit: 3, when it was imported"),
        ("LISTED = 5", "is an object of the type int, but must have the type TargetType"),
        (LISTED.replace('"listed", L', '"liszt", L'), "is named 'liszt', but its entry point 'listed'"),
    ],
)
def test_a_broken_package_is_an_error_at_the_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, part: str
) -> None:
    """Only rules that name its type are concerned, and their error has the reason."""
    install(tmp_path / "site", monkeypatch, "acme_lists", module, {"eventbridge.targets": "listed = acme_lists:LISTED"})

    (error,) = said_about(tmp_path / "rules", "type: listed")
    assert error.startswith("7:20: $.rules.r.targets.t.type: the ")
    assert "the target type 'listed' of the package acme_lists 1.0" in error
    assert part in error
    assert read(tmp_path / "rules", "type: file, path: /x").rules


def test_a_type_of_two_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice between the two would be undefined."""
    for package in ("acme_lists", "other_lists"):
        install(tmp_path / package, monkeypatch, package, LISTED, {"eventbridge.targets": f"listed = {package}:LISTED"})

    assert said_about(tmp_path / "rules", "type: listed") == [
        "7:20: $.rules.r.targets.t.type: the type 'listed' is provided by acme_lists and other_lists. "
        "Remove one of these packages."
    ]


def test_a_frozen_rule_of_a_type_that_is_not_installed_is_kept_as_it_is() -> None:
    """Each of its deliveries fails with what is missing and where to install it; other rules are not concerned."""
    target = as_target({"name": "t", "type": "listed", "list_name": "a"})

    assert content_of(target)["list_name"] == "a"
    assert re.fullmatch(
        r"There is no type 'listed' in the group eventbridge\.targets\. Known types: http, .*, s3.*\. "
        r"Install the package that provides it on this machine\.",
        error_of(target) or "",
    )


@pytest.mark.usefixtures("listed")
def test_a_frozen_rule_whose_fields_the_package_accepts_no_more_is_kept_as_it_is() -> None:
    """Each of its deliveries fails with the reason."""
    target = as_target({"name": "t", "type": "listed", "list_name": "NO", "from_version_0": 1})

    assert content_of(target)["from_version_0"] == 1
    assert error_of(target).startswith(
        "The target type 'listed' of the package acme_lists 1.0 does not accept the fields that the rules in force have"
    )


def error_of(target: Target) -> str | None:
    """Return the error of one delivery to a target."""
    opened = open_target("r", target, lambda _: None, lambda: datetime.now(UTC))  # type: ignore[arg-type, return-value]
    until = datetime.now(UTC) + timedelta(seconds=10)
    with closing(opened):
        ((_, response),) = opened.deliver([Request(0, str(uuid4()), b"{}", "")], until)
    return response.error


@pytest.mark.usefixtures("listed")
def test_it_is_opened_by_its_opener(tmp_path: Path) -> None:
    """The opener gets the fields, and its errors name rule and target."""
    target = as_target({"name": "t", "type": "listed", "list_name": "a"})
    assert error_of(target) is None

    locked = as_target({"name": "t", "type": "listed", "list_name": "locked"})
    with pytest.raises(Exception, match=r"Target 't' of rule 'r' names a list that is locked\. Name another\."):
        error_of(locked)


@pytest.mark.usefixtures("listed")
def test_chunks_are_as_large_as_suits_what_a_target_takes() -> None:
    """A request each, a batch request each, or blocks; a package's type that says nothing takes single deliveries."""
    http, batch_requests = {"type": "http"}, {"type": "http", "batch": {"count": 5}}
    file, listed = {"type": "file"}, {"type": "listed", "list_name": "a"}
    targets = [as_target({"name": "t", **fields}) for fields in (http, batch_requests, file, listed)]

    assert [TARGET_TYPES.get(target.type).takes_of(target) for target in targets] == [
        "deliveries",
        "batch_requests",
        "blocks",
        "deliveries",
    ]
    sizes = [TARGET_TYPES.get(target.type).chunk_size_of(target) for target in targets]
    assert sizes == [CHUNK_SIZES[takes] for takes in ("deliveries", "batch_requests", "blocks", "deliveries")]


def test_built_in_types_cost_no_look_at_packages(tmp_path: Path) -> None:
    """Reading rules of built-in types neither looks for packages nor imports what delivers."""
    (tmp_path / "r.yaml").write_text(
        f"{BUS}rules: {{r: {{bus: b, pattern: {{}}, targets: {{t: {{type: file, path: /x}}, "
        "u: {type: http, url: 'https://x.example', batch: {count: 5}}}}}\n"
    )
    code = (
        "import importlib.metadata, sys\nfrom pathlib import Path\nfrom eventbridge.rules.load import load_rules\n"
        "def refuse(**_): raise AssertionError('looked for packages')\n"
        "import eventbridge.rules.types as registry\nregistry.entry_points = refuse\n"
        "load_rules(Path(sys.argv[1]))\n"
        "print(sorted({'pycurl', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_a_type_whose_package_is_missing_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule with a Kafka target, on a host without Kafka's client, fails with the command that installs it."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for module in ("eventbridge.targets.kafka.target", "eventbridge.clients.kafka.client"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    with pytest.raises(PackageMissing, match=r"\[kafka\]"):
        TARGET_TYPES.load_opener("kafka")
