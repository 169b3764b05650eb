"""The CPU budget of a rule's expensive transforms in one batch; created and kept by the route stage."""

from __future__ import annotations

from eventbridge.errors import BudgetSpent


class Budget:
    """Counts CPU seconds; one per rule and batch, or per share of a batch that one worker routes.

    Nothing is evaluated once it is spent; the evaluation that spends it is finished, which takes at most a second more.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent_seconds = 0.0

    def require(self) -> None:
        """Raise BudgetSpent if nothing is left."""
        if self.spent_seconds >= self.seconds:
            raise BudgetSpent(f"the CPU budget of {self.seconds:g} s is spent")

    def charge(self, seconds: float) -> None:
        """Count what an evaluation took."""
        self.spent_seconds += seconds
