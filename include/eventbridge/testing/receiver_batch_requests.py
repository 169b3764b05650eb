"""The test receiver's batch requests: delivery ids, and refusals counted by delivery."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence


def batch_request_ids(headers: Mapping[str, str]) -> list[str]:
    """Return the delivery ids that a request lists, in the order of its items; none if it is not a batch request."""
    text = headers.get("webhook-ids", "")
    return text.split(",") if text else []


class BatchRequestEndpoint:
    """Refuses some deliveries of a path, and accepts them later."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, int]] = defaultdict(dict)  # sequence numbers by path and delivery id
        self._refused: Counter[tuple[str, str]] = Counter()

    def statuses(self, path: str, ids: Sequence[str], status: int, every: int, times: int) -> list[int]:
        """Return `status` for every `every`th delivery that comes to a path, so many times each, else 200."""
        found, places = [], self._places[path]
        for each in ids:
            key = (path, each)
            place = places.setdefault(each, 1 + len(places))
            refused = place % every == 0 and self._refused[key] < times
            self._refused[key] += refused
            found.append(status if refused else 200)
        return found
