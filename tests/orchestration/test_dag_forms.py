"""The forms with which a person triggers DAGs: their fields, types, choices and proposals."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import get_args

import pytest
from airflow.sdk import DAG

from eventbridge.stages.letters.selection import REASONS, Selection
from eventbridge.stages.operate.say import Action


def test_the_form_of_a_replay_is_typed(dags: dict[str, DAG]) -> None:
    """Each field has a type, a title and help; times are picked, choices are listed; as it stands, it is valid."""
    params = dags["replay_events"].params
    schemas = {name: params.get_param(name) for name in params}

    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name: each.schema["enum"] for name, each in schemas.items() if "enum" in each.schema} == {
        "as_of": ["today", "then"],
        "ids": ["new", "same"],
    }
    params.validate()


def test_a_replay_form_asks_for_nothing_that_is_optional(dags: dict[str, DAG]) -> None:
    """Every field but choices may be left empty, and the buses of the rule files are proposed."""
    for name in ("replay_events", "replay_archive"):
        params = {each: dags[name].params.get_param(each).schema for each in dags[name].params}

        assert params["bus"]["examples"] == ["orders"]
        assert {each for each, schema in params.items() if "null" not in schema["type"]} == {
            "as_of",
            "ids",
            "skip_delivered",
            "dry_run",
        }


def test_the_form_of_a_redrive_has_what_selections_have(dags: dict[str, DAG]) -> None:
    """Each field of a selection and each option is a typed parameter; as it stands, the form is valid."""
    params = dags["redrive_dead_letters"].params
    fields = {each.name for each in dataclasses.fields(Selection)}

    assert set(params) == fields | {"everything", "rate", "retransform", "again", "dry_run", "redrive_id"}
    assert all("type" in params.get_param(name).schema for name in params)
    assert params.get_param("reason").schema["enum"] == [None, *(each for each in REASONS if each != "Malformed")]
    params.validate()


def test_the_form_of_operate_rules_has_every_action(dags: dict[str, DAG]) -> None:
    """What can be said of rules and targets is a choice of the form, whose fields are typed."""
    params = dags["operate_rules"].params

    assert tuple(params.get_param("action").schema["enum"]) == get_args(Action)
    assert set(params) == {"action", "rule", "target", "value", "confirm"}
    assert all("type" in params.get_param(name).schema for name in params)


def test_the_form_of_explain_event_is_typed(dags: dict[str, DAG]) -> None:
    """An id is required; bus and times are not, and times are picked."""
    params = dags["explain_event"].params
    schemas = {name: params.get_param(name).schema for name in params}

    assert set(schemas) == {"event_id", "bus", "from", "to"}
    assert [name for name in schemas if schemas[name].get("format") == "date-time"] == ["from", "to"]
    assert all("type" in each and each["title"] for each in schemas.values())
    assert schemas["event_id"]["minLength"] == 1


@pytest.mark.parametrize(("dag_id", "named"), [("backtest_rules", {"candidate"}), ("diff_rules", {"a", "b"})])
def test_the_form_of_a_backtest_is_typed(dags: dict[str, DAG], dag_id: str, named: set[str]) -> None:
    """Each field has a type, a title and help; times are picked; what is compared must be named."""
    params = dags[dag_id].params
    schemas = {name: params.get_param(name) for name in params}

    assert set(params) == named | {"from", "to", "bus", "samples"}
    assert all("type" in each.schema and each.schema["title"] and each.description for each in schemas.values())
    assert [name for name in schemas if schemas[name].schema.get("format") == "date-time"] == ["from", "to"]
    assert {name for name in schemas if schemas[name].schema.get("minLength")} == named
    assert dags[dag_id].dagrun_timeout == timedelta(hours=6)


def test_the_form_of_publish_events_proposes_the_buses(dags: dict[str, DAG]) -> None:
    """The buses of the rule files are proposed, and every field is typed."""
    params = dags["publish_events"].params

    assert "orders" in params.get_param("bus").schema["examples"]
    assert set(params) == {"bus", "topic", "events"}
    assert all("type" in params.get_param(name).schema for name in params)
