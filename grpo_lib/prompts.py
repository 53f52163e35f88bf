"""The prompt book: which task indices have been trained on, so that each is consumed once.

Prompts are index-addressable and without end, so a run walks 0, 1, 2, ... What a dead worker held, or what was dropped
as stale, goes back and is handed out again before new ones.
"""

from __future__ import annotations

import heapq
from typing import Any


class PromptBook:
    """Hands out prompt indices and remembers which have not been trained on yet.

    Args:
        state: what `state()` returned at a checkpoint; None starts at index 0.
    """

    def __init__(self, state: dict[str, Any] | None = None):
        state = state or {"next": 0, "unconsumed": []}
        self._next: int = state["next"]
        self._returned: list[int] = list(state["unconsumed"])
        heapq.heapify(self._returned)
        self._out: set[int] = set()

    def take(self, count: int) -> list[int]:
        """`count` indices to work on, returned ones first."""
        taken = []
        while len(taken) < count:
            if self._returned:
                taken.append(heapq.heappop(self._returned))
            else:
                taken.append(self._next)
                self._next += 1
        self._out.update(taken)
        return taken

    def give_back(self, indices: list[int]) -> None:
        """These were taken and will not be trained on as they are: hand them out again."""
        for index in indices:
            self._out.remove(index)
            heapq.heappush(self._returned, index)

    def consume(self, index: int) -> None:
        """This one goes into an optimizer step."""
        self._out.remove(index)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: everything below `next` has been consumed, but for `unconsumed`."""
        return {"next": self._next, "unconsumed": sorted([*self._returned, *self._out])}
