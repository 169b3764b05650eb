"""Defines the command group `targets`, which shows, checks, pauses, resumes and enables targets, and sends events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventbridge.cli import operate
from eventbridge.cli.lines import one_event
from eventbridge.cli.output import JsonOption, note, print_line, show_document, show_fields, show_table, visible
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.suggestion import Group
from eventbridge.model.pending import EXPECTATION_FAILED, RULE_PAUSED, TARGET_PAUSED

if TYPE_CHECKING:
    from eventbridge.views.target_status import TargetLine

#: The command that ends a hold, by the reason of the hold.
_RELEASE_COMMANDS = {
    RULE_PAUSED: "rules resume {0}",
    TARGET_PAUSED: "targets resume {0}/{1}",
    EXPECTATION_FAILED: "rules release {0}",
}

app = typer.Typer(cls=Group, help="List, check, pause, resume and enable targets.", no_args_is_help=True)
app.command("pause", short_help="Pause a target: its deliveries wait.")(operate.pause_target)
app.command("resume", short_help="Resume a paused target.")(operate.resume_target)
app.command("rate", short_help="Override the rate of a target.")(operate.set_rate)


@app.command("list", short_help="Show the state of each target, and why.")
def list_targets(as_json: JsonOption = False) -> None:
    """Show the state of each target of the current rule files, when it began, and why; changes nothing.

    ok: the breaker is closed; failing: as ok, but each attempt since the time shown failed, and deliveries wait for a
    retry; degraded: the breaker is open until the time shown, then probes are sent; half-open: the last probes
    succeeded; disabled: deliveries are on hold until you enable the target; paused: the target responded with 429 and
    nothing is sent before the time shown, or an operator paused it, or its pool has no slots (see the reason). For a
    target that is ok, the time shown is when its rate, which rises after a recovery, reaches its limit.
    """
    from eventbridge.views.target_status import target_list

    with open_runtime(expects_ledger=True) as runtime:
        found = target_list(runtime)
    if as_json:
        show_document(found)
        return
    show_table(
        "Targets, times in UTC",
        ["rule", "target", "state", "since", "until", "waiting", "reason"],
        [[t.rule, t.target, t.state, t.since, t.paused_until or t.until, t.waiting, _why(t)] for t in found],
    )


@app.command(short_help="Show one target with its newest responses.")
def show(
    about: operate.TargetArgument,
    name: operate.TargetName = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of one target, and its newest responses, newest first."""
    from eventbridge.rules.find import find_target
    from eventbridge.views.queues import queue_of_target
    from eventbridge.views.requests import recent_responses
    from eventbridge.views.target_status import target_lines

    with open_runtime(expects_ledger=True) as runtime:
        rule, target = operate.parse_target(runtime, about, name)
        find_target(runtime.rule_set(), rule, target)
        queue = queue_of_target(runtime, rule, target)
        (line,) = (each for each in target_lines(runtime, rule) if each.target == target)
        responses = recent_responses(runtime, rule, target).newest
    if as_json:
        show_document(vars(line) | {"responses": responses})
        return
    fields = [("state", line.state), ("since", line.since), ("until", line.paused_until or line.until)]
    show_fields([("target", f"{rule}/{target}"), *fields, ("waiting", line.waiting), ("reason", _why(line) or None)])
    if queue is not None:
        print_line()
        show_table(
            f"Deliveries in the queue {queue.queue}",
            ["ready", "delayed", "blocked", "received", "finished"],
            [[queue.ready, queue.delayed, queue.blocked, queue.received, queue.finished]],
        )
    print_line()
    show_table(
        "Newest responses, times in UTC",
        ["started", "attempt", "ms", "status", "code", "error"],
        [[r.started_at, r.attempt, r.duration_ms, r.outcome, r.code and str(r.code), r.error] for r in responses],
    )


def _why(line: TargetLine) -> str:
    return "; ".join(filter(None, (line.reason, line.hold_reason)))


@app.command(short_help="Check that a target can be reached.")
def check(
    about: operate.TargetArgument,
    name: operate.TargetName = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a target can be reached: host name, connection, TLS, login.

    Sends no request to the target, except for its handshake. Exit code 1 if the target cannot be reached.
    """
    from eventbridge.control.try_target import check_target

    with open_runtime(expects_ledger=True) as runtime:
        rule, target = operate.parse_target(runtime, about, name)
        error = check_target(runtime, rule, target)
    if as_json:
        show_document({"rule": rule, "target": target, "reached": error is None, "error": error})
    elif error is None:
        print_line(f"{rule}/{target} can be reached")
    else:
        print_line(f"{rule}/{target} cannot be reached: {visible(error)}")
    if error is not None:
        raise typer.Exit(1)


@app.command(short_help="Send one event to a target once.")
def send(
    about: operate.TargetArgument,
    event: Annotated[str, typer.Option("--event", metavar="FILE", help="One CloudEvent in JSON; - is standard input.")],
    name: operate.TargetName = None,
    as_json: JsonOption = False,
) -> None:
    """Send one event, transformed, to a target once, even if the rule does not match the event.

    The request is not a delivery: it counts neither for the reconciliation nor for the breaker. Exit code 1 if the
    target does not accept it.
    """
    from eventbridge.control.try_target import response_document, send_event

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        rule, target = operate.parse_target(runtime, about, name)
        response = send_event(runtime, rule, target, one_event(event, runtime.settings.event_max_size))
    named = response.error_class if response.code is None else f"HTTP {response.code}"
    what = f"{named}: {visible(response.error)}" if response.error else str(named)
    if as_json:
        show_document(response_document(rule, target, response))
    elif response.accepted:
        print_line(f"{rule}/{target} accepted the event" + (f": {what}" if response.code is not None else ""))
    else:
        print_line(f"{rule}/{target} did not accept the event: {what}")
    if not response.accepted:
        raise typer.Exit(1)


@app.command(short_help="Enable a target that is disabled, degraded or paused.")
def enable(
    about: operate.TargetArgument,
    name: operate.TargetName = None,
    as_json: JsonOption = False,
) -> None:
    """Enable a target that is disabled, degraded, half-open or paused: deliveries that wait for it become due.

    Deliveries keep their ids and ages, so those past the maximum age become dead letters.
    """
    from eventbridge.control.overrides import enable_target
    from eventbridge.policy.breaker import pause_of
    from eventbridge.rules.find import find_target

    with open_runtime(expects_ledger=True, is_action=True) as runtime:
        rule, target = operate.parse_target(runtime, about, name)
        find_target(runtime.rule_set(), rule, target)
        status = runtime.ledger.targets.statuses().get((rule, target))
        before: str = "ok" if status is None else status.state
        if before == "ok" and pause_of(status, runtime.clock()) is not None:
            before = "paused"
        released = enable_target(runtime, rule, target)
        hold_reason = runtime.ledger.overrides.get_effective().hold_reason(rule, target)
    if as_json:
        show_document({"rule": rule, "target": target, "before": before, "released": released})
    elif before == "ok" and not released:
        print_line(f"Target {rule}/{target} is already enabled.")
    else:
        waiting = "waiting delivery is" if released == 1 else "waiting deliveries are"
        print_line(f"Target {rule}/{target} enabled; it was {before}. {released:,} {waiting} due now.")
    if hold_reason:
        note(
            f"its deliveries still wait: {hold_reason}. "
            f"Run `eventbridge {_RELEASE_COMMANDS[hold_reason].format(rule, target)}` to send them"
        )
