"""The forms of DAGs: their fields, types, choices and proposals."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from airflow.sdk import DAG

from eventbridge.airflow.dags.operate_rules import REPAIRS
from eventbridge.airflow.dags.replay_events import replay_params
from eventbridge.airflow.form_fields import Choices, choices
from eventbridge.control.overrides import Action
from eventbridge.dead_letters.selection import REASONS, Selection
from eventbridge.model.form_labels import AS_OF_LABELS, IDS_LABELS, REDRIVE_LABELS, REPLAY_LABELS


def test_the_form_of_a_replay_is_typed(dags: dict[str, DAG]) -> None:
    """Each field has a type, a title and a description; times have pickers; the defaults are valid."""
    params = dags["eventbridge_replay_events"].params
    schemas = {name: params.get_param(name) for name in params}

    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name: each.schema["enum"] for name, each in schemas.items() if "enum" in each.schema} == {
        "as_of": ["current", "original"],
        "ids": ["new", "same"],
    }
    params.validate()


def test_the_forms_have_the_labels_of_the_page(dags: dict[str, DAG]) -> None:
    """A field or value that means the same in Airflow and on the page has the same label, from the same list."""
    replay, redrive, archive, backtest = (
        {each: dags[f"eventbridge_{name}"].params.get_param(each).schema for each in dags[f"eventbridge_{name}"].params}
        for name in ("replay_events", "redrive_dead_letters", "replay_archive", "backtest_rules")
    )

    assert {name: replay[name]["title"] for name in REPLAY_LABELS} == REPLAY_LABELS
    assert (replay["as_of"]["values_display"], replay["ids"]["values_display"]) == (AS_OF_LABELS, IDS_LABELS)
    assert {name: redrive[name]["title"] for name in REDRIVE_LABELS} == REDRIVE_LABELS
    for form in (archive, backtest):
        assert all(field["title"] == REPLAY_LABELS[name] for name, field in form.items() if name in REPLAY_LABELS)


def test_a_replay_form_marks_required_fields_and_proposes_names(dags: dict[str, DAG]) -> None:
    """Bus and rules are required, `*` stands for all rules, and names from the rule files are proposed."""
    for name in ("eventbridge_replay_events", "eventbridge_replay_archive"):
        params = {each: dags[name].params.get_param(each).schema for each in dags[name].params}

        assert params["bus"]["examples"] == ["orders"]
        assert params["rules"]["examples"] == ["*", "big", "nightly"]
        assert params["rules"]["values_display"] == {"*": "All rules of the bus"}
        assert params["targets"]["examples"] == ["log"]
        assert starred(dags[name]) == {"bus", "rules", "as_of", "ids", "skip_delivered", "dry_run"}


def test_a_dry_run_is_the_default_of_every_form_that_sends_again(dags: dict[str, DAG]) -> None:
    """By default a form only reports what it would take."""
    dry = {name: dag.params["dry_run"] for name, dag in dags.items() if "dry_run" in dag.params}

    assert dry == {
        "eventbridge_replay_events": True,
        "eventbridge_replay_archive": True,
        "eventbridge_redrive_dead_letters": True,
    }


def test_every_time_field_has_a_picker(dags: dict[str, DAG]) -> None:
    """Each time field has Airflow's picker."""
    times = {"from", "to", "hour"}
    fields = {(name, each) for name, dag in dags.items() for each in dag.params if each in times}
    picked = {(dag, each) for dag, each in fields if dags[dag].params.get_param(each).schema["format"] == "date-time"}

    assert picked == fields
    assert len(picked) == 11


def test_no_form_shows_null(dags: dict[str, DAG]) -> None:
    """An empty choice has a label, and the default of a list is empty."""
    for dag in dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            if None in param.schema.get("enum", ()):
                assert param.schema["values_display"]["null"]
            if "array" in param.schema["type"]:
                assert param.value == []


@pytest.mark.parametrize(
    ("dag_id", "proposed"),
    [
        ("eventbridge_operate_rules", {"rule": ["big", "nightly"], "target": ["log"]}),
        ("eventbridge_redrive_dead_letters", {"rule": ["big", "nightly"], "target": ["log"]}),
        ("eventbridge_publish_events", {"bus": ["orders"]}),
        ("eventbridge_explain_event", {"bus": ["orders"]}),
        ("eventbridge_backtest_rules", {"bus": ["orders"]}),
        ("eventbridge_diff_rules", {"bus": ["orders"]}),
    ],
)
def test_forms_propose_the_names_of_the_rule_files(
    dags: dict[str, DAG], dag_id: str, proposed: dict[str, list[str]]
) -> None:
    """Every field for a bus, rule or target proposes names."""
    params = dags[dag_id].params
    schemas = {name: params.get_param(name).schema for name in params}

    assert {name: each["examples"] for name, each in schemas.items() if "examples" in each} == proposed


def test_a_form_of_many_rules_proposes_none(home: Path) -> None:
    """Airflow stores the form in its database, and a truncated list would hide the other names, so none are
    proposed.
    """
    rules = "".join(
        f"  rule-{number}:\n    bus: orders\n    pattern: {{type: [a]}}\n"
        "    targets: {log: {type: file, path: /tmp/never-written.jsonl}}\n"
        for number in range(500)
    )
    (home.parent / "rules" / "more.yaml").write_text(f"rules:\n{rules}")

    assert choices() == Choices(buses=("orders",), targets=("log",))
    assert "examples" not in replay_params(choices())["rules"].schema


def starred(dag: DAG) -> set[str]:
    """Return the fields that Airflow marks as required."""
    return {name for name in dag.params if "null" not in dag.params.get_param(name).schema["type"]}


def test_the_form_of_a_redrive_has_the_fields_of_a_selection(dags: dict[str, DAG]) -> None:
    """Each field of a selection and each option is a typed parameter; the defaults are valid."""
    params = dags["eventbridge_redrive_dead_letters"].params
    times = {"since": "from", "until": "to"}
    fields = {times.get(each.name, each.name) for each in dataclasses.fields(Selection)} - {"payloads"}  # a permission

    assert set(params) == fields | {"everything", "rate", "retransform", "again", "dry_run", "redrive_id"}
    assert all("type" in params.get_param(name).schema for name in params)
    assert params.get_param("reason").schema["enum"] == [None, *(each for each in REASONS if each != "malformed")]
    params.validate()


def test_the_form_of_operate_rules_has_every_action(dags: dict[str, DAG]) -> None:
    """Every action on rules and targets is a choice of the form, whose fields are typed."""
    params = dags["eventbridge_operate_rules"].params

    assert tuple(params.get_param("action").schema["enum"]) == (*get_args(Action), *REPAIRS)
    assert set(params) == {"action", "rule", "target", "value", "confirm"}
    assert all("type" in params.get_param(name).schema for name in params)


def test_the_form_of_explain_event_is_typed(dags: dict[str, DAG]) -> None:
    """The id is required; bus and times are optional, and times have pickers."""
    params = dags["eventbridge_explain_event"].params
    schemas = {name: params.get_param(name).schema for name in params}

    assert set(schemas) == {"event_id", "bus", "from", "to"}
    assert [name for name in schemas if schemas[name].get("format") == "date-time"] == ["from", "to"]
    assert all("type" in each and each["title"] for each in schemas.values())
    assert schemas["event_id"]["minLength"] == 1


@pytest.mark.parametrize(
    ("dag_id", "named"), [("eventbridge_backtest_rules", {"candidate"}), ("eventbridge_diff_rules", {"a", "b"})]
)
def test_the_form_of_a_backtest_is_typed(dags: dict[str, DAG], dag_id: str, named: set[str]) -> None:
    """Each field has a type, a title and a description; times have pickers; candidates are required."""
    params = dags[dag_id].params
    schemas = {name: params.get_param(name) for name in params}

    assert set(params) == named | {"from", "to", "bus", "samples"}
    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name for name in schemas if schemas[name].schema.get("minLength")} == named
    assert dags[dag_id].dagrun_timeout == timedelta(hours=6)
    assert starred(dags[dag_id]) == named | {"from", "samples"}


def test_the_form_of_publish_events_proposes_the_buses(dags: dict[str, DAG]) -> None:
    """The buses of the rule files are proposed, and every field is typed."""
    params = dags["eventbridge_publish_events"].params

    assert "orders" in params.get_param("bus").schema["examples"]
    assert set(params) == {"bus", "topic", "events"}
    assert all("type" in params.get_param(name).schema for name in params)
