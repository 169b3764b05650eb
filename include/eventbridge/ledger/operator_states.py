"""What operators said of rules and targets, in the ledger: it holds until they take it back."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import operator_states as statements
from eventbridge.model.operator_state import OperatorState, OperatorStates, OperatorWord


class OperatorWords(Database):
    """The part of the ledger about what operators said."""

    def operator_states(self) -> list[OperatorState]:
        """Return all that holds, by rule, target and word."""
        with self._reading() as connection:
            return [OperatorState(**row._mapping) for row in connection.execute(statements.OPERATOR_STATES)]

    def said_by_operators(self) -> OperatorStates:
        """Return what follows from it, and from expectations that failed: it is on hold until it is released."""
        with self._reading() as connection:
            rows = connection.execute(statements.WHAT_HOLDS).all()
        said = {(row.rule, row.target, row.word): row.value for row in rows if row.word != statements.ON_HOLD}
        return OperatorStates(said, {row.rule for row in rows if row.word == statements.ON_HOLD})

    def say(self, rule: str, target: str, word: OperatorWord, value: str, said_by: str) -> bool:
        """Note what an operator says from now on; False, and nothing changes, if it holds already."""
        now = self.now()
        row = {"rule": rule, "target": target, "word": word, "value": value, "said_by": said_by, "since": now}
        change = {"of_rule": rule, "of_target": target, "of_word": word, "to": value, "who": said_by, "now": now}
        with self._writing() as connection:
            if connection.execute(statements.NOTE_OPERATOR_STATE, row).rowcount == 1:
                return True
            return connection.execute(statements.CHANGE_OPERATOR_STATE, change).rowcount == 1

    def unsay(self, rule: str, target: str, word: OperatorWord) -> bool:
        """Forget what an operator said; False if nothing was."""
        of = {"of_rule": rule, "of_target": target, "of_word": word}
        with self._writing() as connection:
            return connection.execute(statements.DROP_OPERATOR_STATE, of).rowcount == 1
