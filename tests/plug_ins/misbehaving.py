"""A package whose types misbehave in every way that a rule chooses by `how`. Serves the tests of plug-ins."""

MODULE = """
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, field_validator

from eventbridge.plugins import Message, Result, SourceFields, SourceType, TargetFields, TargetType, TransformType

FOREVER = 1_000_000
WAITING = ["a message"]
BODY = b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"id": 1}}'


class BadTarget(TargetFields):
    type: Literal["bad"] = "bad"
    how: str
    timeout_seconds: float = 0.5

    @field_validator("how")
    @classmethod
    def _check(cls, value):
        if value == "raise in the settings":
            raise KeyError("no such setting")
        return value


class BadSpans(BadTarget):
    type: Literal["bad_spans"] = "bad_spans"


class Sender:
    def __init__(self, setup):
        self._how = setup.target.how
        if self._how == "raise at the start":
            raise OSError("no route to host")
        if self._how == "hang at the start":
            time.sleep(FOREVER)
        if "secret" in self._how:
            secret = setup.connections("crm").password
        if self._how == "tell a secret":
            raise OSError("login failed with " + secret)
        if self._how == "tell a secret late":
            raise OSError("x" * 480 + secret * 20)
        if self._how == "tell a secret of a setting":
            raise setup.error("cannot log in with " + secret, "Correct it")
        if self._how == "tell a secret of an object":
            raise OSError(setup.connections("crm").extra["login"]["password"])
        if self._how == "leave threads":
            for _ in range(70):
                threading.Thread(target=time.sleep, args=[FOREVER]).start()

        self._setup = setup

    max_requests = 10

    def check(self):
        if self._how == "tell a secret in the check":
            return "401 for " + self._setup.connections("crm").password
        return None

    def send(self, requests):
        ids = [each.delivery_id for each in requests]
        accepted = {each: Result.accept() for each in ids}
        match self._how:
            case "raise":
                raise ValueError("boom")
            case "raise an error that cannot be shown":
                raise Unshown
            case "exit":
                raise SystemExit(0)
            case "hang":
                time.sleep(FOREVER)
            case "return nothing":
                return None
            case "return a list":
                return [Result.accept() for _ in ids]
            case "return too few":
                return {}
            case "return others":
                return {**accepted, str(uuid4()): Result.accept()}
            case "return wrong types":
                return {each: True for each in ids}
            case "return wrong values":
                return {each: Result(False, error=b"x", retry_after_seconds=float("nan")) for each in ids}
            case "change requests":
                for each in requests:
                    each.index, each.delivery_id = 7, str(uuid4())
        return accepted

    def send_span(self, span):
        return self.send([Row(name) for name, _ in span.rows()])


class Row:
    def __init__(self, delivery_id):
        self.delivery_id = delivery_id


class Unshown(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class BadSource(SourceFields):
    type: Literal["bad"] = "bad"
    how: str


class Receiver:
    def __init__(self, setup):
        self._how = setup.source.how
        if self._how == "raise at the start":
            raise OSError("no route to host")
        if self._how == "tell a secret":
            raise OSError("login failed with " + setup.connections("crm").password)

    def receive(self, at_most):
        match self._how:
            case "raise":
                raise ValueError("boom")
            case "hang":
                time.sleep(FOREVER)
            case "return nothing":
                return None
            case "return too many":
                return [Message(BODY, str(number)) for number in range(at_most + 1)]
            case "return wrong types":
                return [BODY]
            case "return wrong values":
                return [Message("a text", "1")]
            case "return half a character":
                return [Message(BODY, chr(0xD800))]
            case "return a time before all times":
                return [Message(BODY, "1", published_at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))]
        return [Message(BODY, "1")][: len(WAITING)]

    def acknowledge(self, receipts):
        if self._how == "raise at acknowledge":
            raise ValueError("boom")
        WAITING.clear()

    def waiting(self):
        return "some" if self._how == "count nonsense" else len(WAITING)


class BadSettings(BaseModel):
    how: str


def render(settings):
    if settings.how == "raise at the start":
        raise OSError("no route to host")
    if settings.how == "open nothing":
        return None

    def rendered(event):
        match settings.how:
            case "raise":
                raise ValueError("boom")
            case "exit":
                raise SystemExit(0)
            case "sleep":
                time.sleep(FOREVER)
            case "loop":
                while True:
                    pass
            case "raise half a character":
                raise ValueError(chr(0xD800))
            case "return a set":
                return {1, 2}
            case "return NaN":
                return float("nan")
            case "return itself":
                found = []
                found.append(found)
                return found
        return event["data"]

    return rendered


TARGET = TargetType("bad", BadTarget, Sender)
SPANS = TargetType("bad_spans", BadSpans, Sender, takes="spans")
SOURCE = SourceType("bad", BadSource, Receiver)
TRANSFORM = TransformType("bad", BadSettings, render)
"""
POINTS = {
    "eventbridge.targets": "bad = acme_bad:TARGET\nbad_spans = acme_bad:SPANS",
    "eventbridge.sources": "bad = acme_bad:SOURCE",
    "eventbridge.transforms": "bad = acme_bad:TRANSFORM",
}
