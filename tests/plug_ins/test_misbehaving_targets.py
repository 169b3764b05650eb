"""A target of a plug-in that raises, hangs, leaves threads or returns nonsense costs only its own deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from eventbridge import plug_in_calls
from eventbridge.errors import UserError
from eventbridge.rules.types import SOURCE_TYPES, TARGET_TYPES, TRANSFORM_TYPES
from eventbridge.testing.plug_ins import Installation

RULES = """
buses: {{orders: {{source: {{type: embedded, start_at: earliest}}}}}}
rules:
  bad:
    bus: orders
    pattern: {{}}
    targets: {{t: {{type: {type}, how: {how}, retry: {{policy: custom, max_retries: 0}}}}}}
  good:
    bus: orders
    pattern: {{}}
    targets: {{t: {{type: file, path: good.jsonl, transform: {{form: JSONPATH, value: $.data}}}}}}
"""
PLUG_IN = "the target type '{}' of the package acme_bad 1.0 "
#: What a target does, and how the detail of its dead letters continues after its name.
RAISED = [
    ("raise", "raised ValueError: boom"),
    ("raise an error that cannot be shown", "raised Unshown"),
    ("exit", "raised SystemExit: 0"),
    ("raise at the start", "raised OSError: no route to host"),
    ("return nothing", "returned None from {}, but must return results by delivery id"),
    ("return a list", "returned an object of the type list from {}, but must return results by delivery id"),
    ("return others", "returned results from {} for deliveries that it was not given"),
]
NONSENSE = [
    ("return too few", "returned no result for this delivery"),
    ("return wrong types", "returned an object of the type bool as the result of a delivery"),
    ("return wrong values", "returned the result (False, b'x', None, nan, False), which has a wrong value"),
]

Having = Callable[..., Installation]


@pytest.fixture
def having(installed: Callable[..., Installation]) -> Having:
    """Return a function that makes an installation with one rule for a misbehaving target, and one for a file."""

    def make(how: str, type_: str = "bad", **variables: str) -> Installation:
        return installed(RULES.format(how=how, type=type_), **variables)

    return make


def deliver(installation: Installation, streaming: bool = False) -> list[str]:
    """Deliver three events, which reach the file; return the details of the dead letters."""
    installation.publish("orders", *({"data": number} for number in range(3)))
    installation.deliver("orders", streaming=streaming)

    assert sorted(installation.lines("good.jsonl")) == [0, 1, 2]
    letters = installation.dead_letters()
    assert {(each["rule"], each["reason"]) for each in letters} <= {("bad", "maximum_retry_attempts")}
    return [each["detail"].partition(", attempt")[0] for each in letters]


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize(("how", "said"), [*RAISED, *NONSENSE])
def test_what_fails_is_a_dead_letter_that_names_the_package(
    having: Having, how: str, said: str, streaming: bool
) -> None:
    """Each of its deliveries, with the reason; the other rule gets all of its events."""
    expected = f"PlugInFailed: {PLUG_IN.format('bad')}{said.format('send')}"

    assert deliver(having(how), streaming) == [expected] * 3


@pytest.mark.parametrize(
    ("how", "said"), [*RAISED, ("accept", "returned results for deliveries of a span that are no rejections")]
)
def test_a_span_that_fails_is_dead_letters_that_name_the_package(having: Having, how: str, said: str) -> None:
    """All of its deliveries."""
    expected = f"PlugInFailed: {PLUG_IN.format('bad_spans')}{said.format('send_span')}"

    assert deliver(having(how, "bad_spans")) == [expected] * 3


@pytest.mark.parametrize("how", ["hang", "hang at the start"])
def test_a_call_that_hangs_is_given_up_after_the_timeout(having: Having, how: str) -> None:
    """Its deliveries are timeouts; its thread remains, and holds up nothing."""
    expected = f"Timeout: {PLUG_IN.format('bad')}has not returned after "

    assert all(each.startswith(expected) for each in deliver(having(how)))


def test_a_type_that_hangs_too_often_gets_no_more_calls(having: Having, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads that it can keep is limited."""
    monkeypatch.setattr(plug_in_calls, "MAX_HANGING", 1)
    installation = having("hang at the start")
    installation.publish("orders", {"data": 0})
    installation.deliver("orders")

    assert installation.check("bad", "t") == (
        f"{PLUG_IN.format('bad')}has 1 calls that do not return. It gets no more until one of them does"
    )


def test_a_type_that_leaves_threads_gets_no_more_calls(having: Having) -> None:
    """Once what started them is closed, they count."""
    installation = having("leave threads")
    assert deliver(installation) == []
    count = threading.active_count()
    installation.publish("orders", {"data": 3})
    installation.deliver("orders")

    assert threading.active_count() <= count + 2
    (letter,) = installation.dead_letters()
    assert "has left 70 threads running. It gets no more calls until they end" in letter["detail"]


def test_requests_that_it_changes_are_its_own(having: Having) -> None:
    """A response is for the delivery that was sent."""
    assert deliver(having("change requests")) == []


def test_an_error_does_not_show_the_secrets_of_a_connection(having: Having) -> None:
    """Asterisks stand for what the plug-in read."""
    (detail, *_) = deliver(having("tell a secret", EVENTBRIDGE_CONN_CRM="https://me:hush-hush@crm.example"))

    assert detail.endswith("raised OSError: login failed with *********")


@pytest.mark.parametrize("how", ["tell a secret late", "tell a secret of an object"])
def test_an_error_never_shows_half_a_secret_or_one_inside_an_extra(having: Having, how: str) -> None:
    """A secret is removed before the text is cut, and those in objects of an extra are known too."""
    extra = '{"login": {"password": "deep-secret"}}'
    connection = f'{{"conn_type": "http", "login": "me", "password": "hush-hush-hush-hush", "extra": {extra}}}'
    (detail, *_) = deliver(having(how, EVENTBRIDGE_CONN_CRM=connection))

    assert "raised OSError: " in detail
    assert "hus" not in detail
    assert "deep" not in detail


def test_neither_a_check_nor_an_error_of_settings_shows_a_secret(having: Having) -> None:
    """What a plug-in returns as text is like what it raises."""
    crm = "https://me:hush-hush@crm.example"
    installation = having("tell a secret in the check", EVENTBRIDGE_CONN_CRM=crm)
    assert installation.check("bad", "t") == "401 for *********"
    installation = having("tell a secret of a setting", EVENTBRIDGE_CONN_CRM=crm)
    with pytest.raises(UserError, match=r"cannot log in with \*{9}\. Correct it"):
        installation.check("bad", "t")


def test_settings_that_raise_are_an_error_with_line_and_package(having: Having) -> None:
    """No traceback, whatever a validator raises."""
    (error,) = having("raise in the settings").rule_errors()

    assert error.startswith("7:18: $.rules.bad.targets.t: the target type 'bad' of the package acme_bad 1.0 raised Key")


def test_a_check_names_the_package(having: Having) -> None:
    """`targets check` opens the target."""
    assert having("raise at the start").check("bad", "t") == (
        f"{PLUG_IN.format('bad')}raised OSError: no route to host"
    )


def test_rules_in_force_survive_the_removal_of_a_package(having: Having, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deliveries fail with the reason, and the other rule goes on with the rules in force."""
    installation = having("accept")
    assert deliver(installation) == []
    for registry in (SOURCE_TYPES, TARGET_TYPES, TRANSFORM_TYPES):
        monkeypatch.setattr(registry, "_found", {})
        monkeypatch.setattr(registry, "_loaded", {})
    installation.publish("orders", {"data": 3})
    installation.deliver("orders")

    assert sorted(installation.lines("good.jsonl")) == [0, 1, 2, 3]
    (letter,) = installation.dead_letters()
    assert "there is no type 'bad' in the group eventbridge.targets" in letter["detail"].lower()
