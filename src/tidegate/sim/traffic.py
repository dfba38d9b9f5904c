"""Who asks, how often, and what then? A workload's clients, as the gateway meets them.

The workload says what comes and what follows an answer; `clients` says how a refused client behaves.
Arrivals are drawn one ahead, so that a million of them take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from tidegate.core.errors import CallerError, ConfigurationError
from tidegate.core.hashing import hash64
from tidegate.core.request import Request
from tidegate.sim.agenda import Agenda
from tidegate.sim.clients import Refusal, comes_back_after_s
from tidegate.sim.driver import Driver, Flight
from tidegate.sim.scenario import Scenario
from tidegate.workload.requests import PlannedRequest, Workload


@dataclass(slots=True, eq=False)
class Traffic:
    """All clients of a run. Stops the agenda once nobody wants anything any more."""

    scenario: Scenario
    workload: Workload
    agenda: Agenda
    driver: Driver
    rng: Random
    until: float
    """Nobody comes from then on; who has come is served."""
    retries: int = 0
    last_arrival_at: float = 0.0
    """Of a request that is no client's retry; 0 before any."""
    _starts: Iterator[PlannedRequest] = field(init=False)
    _more: bool = True
    _open: int = 0
    """Requests that are planned and have not ended for good."""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    _ranks: dict[str, int] = field(init=False)
    _class: str = field(init=False)
    _model: str = field(init=False)
    _timed: bool = field(init=False)

    def __post_init__(self) -> None:
        self._ranks = {name: rank for rank, name in enumerate(self.scenario.governor.classes)}
        self._class = self.scenario.default_class or next(iter(self._ranks))
        self._model = next(iter(self.scenario.pools))
        self._starts = iter(self.workload.starts())
        clients = self.scenario.clients
        self._timed = clients.patience_s is not None or clients.hang_up_after_s is not None
        self.driver.on_end = self._on_end

    def start(self) -> None:
        """Plan the first arrival."""
        self._plan_next()
        self._stop_if_done()

    # -- arrivals ---------------------------------------------------------------------------------

    def _plan_next(self) -> None:
        planned = next(self._starts, None)
        if planned is None or planned.at_s >= self.until:
            self._more = False
        else:
            self._open += 1
            self._plan(self._start, planned)

    def _plan(self, act: Callable[[float, PlannedRequest], None], planned: PlannedRequest) -> None:
        if planned.at_s < self.agenda.now:
            raise CallerError(
                f"the workload asks at {planned.at_s:g} s, and it is {self.agenda.now:g} s already"
            )
        self.agenda.at(planned.at_s, act, planned)

    def _start(self, now: float, planned: PlannedRequest) -> None:
        self._plan_next()
        self._follow(now, planned)

    def _follow(self, now: float, planned: PlannedRequest) -> None:
        self.last_arrival_at = now
        self._ask(now, planned, 0)

    def _come_back(self, now: float, again: tuple[PlannedRequest, int]) -> None:
        self.retries += 1
        self._ask(now, *again)

    def _ask(self, now: float, planned: PlannedRequest, retries: int) -> None:
        request = self._request(planned)
        rank = self._ranks.get(request.priority)
        if rank is None:
            known = ", ".join(self._ranks)
            raise ConfigurationError(
                [f"a request asks for the class {request.priority!r}; there are: {known}"]
            )
        flight = Flight(planned, retries, rank)
        if self._timed:
            self._set_timers(now, request.request_id)
        self.driver.arrive(now, flight, request)

    def _request(self, planned: PlannedRequest) -> Request:
        scenario, tenant = self.scenario, planned.tenant
        prompt_bytes = planned.prompt_bytes
        if prompt_bytes is None:
            prompt_bytes = round(planned.prompt_tokens * scenario.bytes_per_token)
        model = planned.model or self._model
        return Request(
            request_id=next(self._ids),
            model=scenario.models.get(model, model),
            tenant=tenant,
            key=scenario.keys.get(tenant, ""),
            priority=planned.priority or scenario.callers.get(tenant, self._class),
            prompt_bytes=prompt_bytes,
            max_tokens=planned.max_tokens,
            streams=planned.streams,
            body_bytes=prompt_bytes,
            affinity=_affinity(planned),
            prefix=planned.prefix,
            prefix_block_tokens=planned.prefix_block_tokens,
        )

    # -- patience ---------------------------------------------------------------------------------

    def _set_timers(self, now: float, request_id: int) -> None:
        clients = self.scenario.clients
        if clients.patience_s is not None:
            self.agenda.at(now + clients.patience_s, self._lose_patience, request_id)
        if clients.hang_up_after_s is not None:
            self.agenda.at(now + clients.hang_up_after_s, self._hang_up, request_id)

    def _lose_patience(self, now: float, request_id: int) -> None:
        flight = self.driver.flights.get(request_id)
        if flight is not None and not flight.first_token:
            self._hang_up(now, request_id)

    def _hang_up(self, now: float, request_id: int) -> None:
        flight = self.driver.flights.get(request_id)
        if flight is not None:
            self.driver.leave(now, request_id)
            self._done(now, flight.planned, ok=False)

    # -- ends -------------------------------------------------------------------------------------

    def _on_end(self, now: float, flight: Flight, refusal: Refusal | None) -> None:
        if refusal is not None:
            back_s = comes_back_after_s(self.scenario.clients, refusal, flight.retries, self.rng)
            if back_s is not None:
                self.agenda.at(now + back_s, self._come_back, (flight.planned, flight.retries + 1))
                return
        self._done(now, flight.planned, ok=refusal is None)

    def _done(self, now: float, planned: PlannedRequest, *, ok: bool) -> None:
        follow = self.workload.after(planned, now, ok)
        if follow is None or follow.at_s >= self.until:
            self._open -= 1
            self._stop_if_done()
        else:
            self._plan(self._follow, follow)

    def _stop_if_done(self) -> None:
        if not (self._open or self._more):
            self.agenda.stop()


def _affinity(planned: PlannedRequest) -> int | None:
    """The hash that the gateway makes of a session's id, or of how a prompt begins."""
    if planned.session is not None:
        return hash64(b"session %d" % planned.session)
    if planned.prefix:
        return hash64(b"prefix %d" % planned.prefix[0])
    return None
