"""What do several sources of requests make together?

Each source (a tenant's chat, another's batch) has dice under its own name, and so has its arrivals whoever
else is there. Together they are merged in order of time, lazily.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import source_of
from tidegate.workload.requests import PlannedRequest, Workload


class Mix:
    """Several workloads as one. Those with sessions or clients were each made with a name of their own."""

    def __init__(self, parts: Sequence[Workload]) -> None:
        if not parts:
            raise ConfigurationError(["a mix needs at least one source of requests"])
        self._parts = parts
        self._owners: dict[int, Workload] = {}
        """By the source's number, which each of its sessions carries."""

    def starts(self) -> Iterator[PlannedRequest]:
        """Those of all, ascending; of equal instants, in the order in which the parts were given.

        Raises ConfigurationError once two parts turn out to have the same name.
        """
        return merge(*(self._noted(part) for part in self._parts), key=lambda planned: planned.at_s)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> PlannedRequest | None:
        """What the source of `planned` does next."""
        owner = self._owners.get(source_of(planned.session)) if planned.session is not None else None
        return None if owner is None else owner.after(planned, ended_at_s, ok)

    def _noted(self, part: Workload) -> Iterator[PlannedRequest]:
        for planned in part.starts():
            if planned.session is not None:
                owner = self._owners.setdefault(source_of(planned.session), part)
                if owner is not part:
                    raise ConfigurationError(["two sources of a mix have the same name; rename one of them"])
            yield planned
