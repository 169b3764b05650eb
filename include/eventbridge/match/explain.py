"""Says why a pattern does not match an event: which condition failed, and on which values."""

from __future__ import annotations

from dataclasses import dataclass

from eventbridge.event.json_document import Document, write_document
from eventbridge.match.compiled import compile_and
from eventbridge.match.consistency import can_be_met, could_be_met
from eventbridge.match.leaves import Leaves, flatten
from eventbridge.pattern.location import json_path
from eventbridge.pattern.nodes import And, Clause, Field, Pattern
from eventbridge.pattern.write import write_clauses, write_condition


@dataclass(frozen=True)
class Finding:
    """One condition that an event does not meet.

    `path` is a JSON path in the event, `condition` the part of the pattern as JSON text, `values` what the event
    holds at that path, each as JSON text; `message` says it in a sentence.
    """

    path: str
    condition: str
    values: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def explain(pattern: Pattern, document: Document) -> list[Finding]:
    """Return why the pattern does not match the event, one finding per failed condition; none if it matches."""
    leaves = flatten(document)
    findings = [] if _met(pattern.where, leaves) else _explain_and(pattern.where, leaves)
    if pattern.unless is not None and _met(pattern.unless.pattern, leaves):
        condition = write_document({"$not": write_clauses(pattern.unless.pattern)})
        findings.append(Finding("$", condition, (), f"the event matches what $not excludes: {condition}"))
    return findings


@dataclass(frozen=True)
class Checked:
    """One condition of a pattern, as in `Finding`, and whether the event meets it."""

    met: bool
    finding: Finding


def check_each(pattern: Pattern, document: Document) -> list[Checked]:
    """Return what the event says to each condition of a pattern: those that it meets and those that it fails.

    Of alternatives those are returned that are met or, if none is, why each is not.
    """
    leaves = flatten(document)
    found = _check_and(pattern.where, leaves)
    if all(each.met for each in found) and not _met(pattern.where, leaves):
        found.append(Checked(False, _explain_conflict(pattern.where)))
    if pattern.unless is not None:
        condition = write_document({"$not": write_clauses(pattern.unless.pattern)})
        excluded = _met(pattern.unless.pattern, leaves)
        message = "the event matches what $not excludes" if excluded else "the event does not match what $not excludes"
        found.append(Checked(not excluded, Finding("$", condition, (), f"{message}: {condition}")))
    return found


def _check_and(where: And, leaves: Leaves) -> list[Checked]:
    found: list[Checked] = []
    for clause in where.clauses:
        if not could_be_met(compile_and(And((clause,))).demand(leaves.by_path)):
            found += [Checked(False, each) for each in _explain_clause(clause, leaves)]
        elif isinstance(clause, Field):
            found.append(Checked(True, _field_met(clause, leaves)))
        else:
            for inner in clause.alternatives:
                if could_be_met(compile_and(inner).demand(leaves.by_path)):
                    found += _check_and(inner, leaves)
    return found


def _field_met(field: Field, leaves: Leaves) -> Finding:
    condition = write_document([write_condition(inner) for inner in field.conditions])
    values = tuple(write_document(leaf.value) for leaf in leaves.by_path.get(field.path, ()))
    if values:
        message = f"{_listed(values)} {'meets' if len(values) == 1 else 'meet'} {condition}"
    else:
        message = f"no value is there, which meets {condition}"
    return Finding(json_path(field.path), condition, values, message)


def _explain_and(where: And, leaves: Leaves) -> list[Finding]:
    """Return the clauses that fail whatever the others choose; if none does, that they do not go together."""
    failed = [
        clause for clause in where.clauses if not could_be_met(compile_and(And((clause,))).demand(leaves.by_path))
    ]
    if failed:
        return [finding for clause in failed for finding in _explain_clause(clause, leaves)]
    return [_explain_conflict(where)]


def _explain_clause(clause: Clause, leaves: Leaves) -> list[Finding]:
    if isinstance(clause, Field):
        return [_explain_field(clause, leaves)]
    condition = write_document({"$or": [write_clauses(inner, clause.path) for inner in clause.alternatives]})
    findings = [Finding(json_path(clause.path), condition, (), "no alternative of $or is met")]
    for alternative in clause.alternatives:
        findings += _explain_and(alternative, leaves)
    return findings


def _explain_field(field: Field, leaves: Leaves) -> Finding:
    condition = write_document([write_condition(inner) for inner in field.conditions])
    values = tuple(write_document(leaf.value) for leaf in leaves.by_path.get(field.path, ()))
    if values:
        message = f"{_listed(values)} {'does' if len(values) == 1 else 'do'} not meet {condition}"
    elif any(path[: len(field.path)] == field.path for path in leaves.by_path):
        message = f"an object and no value is there, {condition} is wanted"
    else:
        message = f"no value is there, {condition} is wanted"
    return Finding(json_path(field.path), condition, values, message)


def _explain_conflict(where: And) -> Finding:
    condition = write_document(write_clauses(where))
    message = f"each condition can be met, but not all in the same elements of arrays: {condition}"
    return Finding("$", condition, (), message)


def _listed(values: tuple[str, ...]) -> str:
    shown = [value if len(value) <= 80 else value[:77] + "..." for value in values[:5]]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _met(where: And, leaves: Leaves) -> bool:
    return can_be_met(compile_and(where).demand(leaves.by_path))
