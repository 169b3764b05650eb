"""Makes outputs with the transform of a plug-in, whose settings a rule file gives as `value`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from types import FrameType
from typing import Any, Final

from pydantic import ValidationError

from eventbridge.errors import EventError, PlugInError, TransformError, TransformFailed, TypeUnusable
from eventbridge.event.cloudevent import Event
from eventbridge.event.json_document import Number, write_document
from eventbridge.plug_in_calls import PlugIn, call, kind_of
from eventbridge.rules.types import TRANSFORM_TYPES, TransformType
from eventbridge.transform.error import error_at, member
from eventbridge.transform.rendered import Rendered, Scope

#: The maximum time that a plug-in may take for one output, in seconds.
RENDER_SECONDS: Final = 5.0


def settings_errors(kind: TransformType, value: object) -> Iterator[TransformError]:
    """Yield the errors in the settings of a transform, as written in a rule file."""
    try:
        kind.fields.model_validate({} if value is None else python_value(value))
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            where = "$.value"
            for step in each["loc"]:
                where = f"{where}[{step}]" if isinstance(step, int) else member(where, step)
            text = each["msg"].removeprefix("Value error, ")
            field = kind.fields.model_fields.get(str(each["loc"][0])) if each["loc"] else None
            described = field.description if field is not None else None
            remedy = (
                f"Expected: {described}" if described else f"The form {kind.name} takes {', '.join(kind.own_words)}"
            )
            yield error_at(where, f"{text[:1].lower()}{text[1:]}", value, remedy)
    except Exception as error:  # of a validator of the plug-in
        yield error_at("$.value", str(_plug_in(kind.name).raised(error)), value, "Update its package, or correct value")


def compile_plug_in(form: str, value: object) -> PlugInRenderer:
    """Return the renderer of a form of a plug-in; raises PlugInError if it cannot be made."""
    plug_in = _plug_in(form)
    try:
        settings = TRANSFORM_TYPES.get(form).fields.model_validate({} if value is None else python_value(value))
        opener = TRANSFORM_TYPES.load_opener(form)
    except TypeUnusable as error:
        raise PlugInError(str(error)) from error
    except Exception as error:  # of a validator of the plug-in, or settings that it does not accept any more
        raise plug_in.raised(error) from error
    make = call(plug_in, lambda: opener(settings))
    if not callable(make):
        raise plug_in.error(f"opened {kind_of(make)}, but must return a function")
    return PlugInRenderer(plug_in, make)


class PlugInRenderer:
    """The compiled transform of a plug-in; one event that fails, or takes too long, does not affect others."""

    def __init__(self, plug_in: PlugIn, make: Callable[[dict[str, Any]], Any]) -> None:
        self._plug_in = plug_in
        self._make = make

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return what the plug-in makes of an event, as JSON; raises TransformFailed with the reason."""
        if scope.budget is not None:
            scope.budget.require()
        try:
            document = python_value(event.document)
        except (ValueError, ArithmeticError) as error:  # Python limits the digits of whole numbers, and exponents
            what = "cannot get the event, because it has a number beyond Python's limits"
            raise TransformFailed(f"{self._plug_in.error(what)}: {type(error).__name__}") from None
        try:
            made = self._bounded(document)
            return Rendered(write_document(made).encode(), "application/json")
        except PlugInError as error:
            raise TransformFailed(str(error)) from None
        except (EventError, RecursionError, ValueError) as error:
            raise TransformFailed(str(self._plug_in.error(f"returned what is not JSON: {error}"))) from None

    def _bounded(self, document: Any) -> Any:
        """Call the plug-in within RENDER_SECONDS; raises PlugInError.

        In the main thread, as of Spark's workers, a call is interrupted. In others it is given up.
        """
        if threading.current_thread() is not threading.main_thread():
            return call(self._plug_in, lambda: self._make(document), RENDER_SECONDS)
        try:
            with _alarm(RENDER_SECONDS):
                return self._make(document)
        except _Late:
            raise self._plug_in.error(f"has not returned after {RENDER_SECONDS:g} s") from None
        except (Exception, SystemExit) as error:
            raise self._plug_in.raised(error) from None


class _Late(BaseException):
    """Raised inside a plug-in; a BaseException, so that it does not catch it as an error of its own."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise _Late in the body after some time; an alarm that was set before, as by Airflow, is set again."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, interrupt)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        remaining, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (seconds - remaining), 1e-3), interval)


def python_value(value: object) -> Any:
    """Return a JSON value with whole numbers as `int` and others as `Decimal`, which keeps the digits as written."""
    if isinstance(value, Number):
        return int(value.text) if value.text.lstrip("-").isdigit() else Decimal(value.text)
    if isinstance(value, dict):
        return {name: python_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [python_value(each) for each in value]
    return value


def _plug_in(form: str) -> PlugIn:
    found = TRANSFORM_TYPES.plug_in(form)
    assert found is not None, "no form of the registry is built in"
    return found
