"""What would a pool of ServeGen's clients ask for? Their rates, burstiness and lengths, window by window.

Each client draws its own arrivals, by the law that fitted it in each window of 10 minutes, and its own
lengths. A window starts afresh, in equilibrium: the publisher fitted windows one by one, and so the
expected number of arrivals is the published rate in each. Prompt and answer are drawn independently: only
their own laws were published.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import accumulate
from math import inf

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.workload.dice import dice
from tidegate.workload.laws.gaps import LEAST_CV, MOST_CV, Even, Gamma, Gaps, Memoryless, Weibull
from tidegate.workload.laws.lengths import Lengths
from tidegate.workload.laws.numbers import Quantiles, whole
from tidegate.workload.requests import SENDER, PlannedRequest, Sender
from tidegate.workload.traces.servegen import WINDOW_S, ClientLengths, ClientWindow

PROMPT_FIELDS = ("input_tokens", "text_tokens", "image_tokens")
"""What a prompt is made of: the first in text pools, the others in those with images."""
OUTPUT_FIELD = "output_tokens"


class ClientPoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a pool's days, at which share of its rate, by whom."""

    from_s: float = 0.0
    """Where in the recorded days the run begins, in whole windows."""
    for_s: float = inf
    rate_factor: float = 1.0
    """Of each client's rate; its burstiness and lengths stay."""
    sender: Sender = SENDER
    tenant_per_client: bool = False
    """Each client is a tenant of its own, `<tenant>-<client>`."""

    def __post_init__(self) -> None:
        if not (0 <= self.from_s < inf and self.from_s % WINDOW_S == 0):
            problem = f"a multiple of {WINDOW_S:g} s, not {self.from_s:g}"
            raise ConfigurationError([f"from_s of a pool is {problem}"])
        if not self.for_s > 0:
            raise ConfigurationError([f"for_s of a pool is above 0, not {self.for_s:g}"])
        if not 0 < self.rate_factor < inf:
            raise ConfigurationError([f"rate_factor of a pool is above 0, not {self.rate_factor:g}"])


class ClientPool:
    """The requests of all clients, in order of arrival; nobody waits for an answer."""

    def __init__(
        self,
        windows: Iterable[ClientWindow],
        lengths: Iterable[ClientLengths],
        settings: ClientPoolSettings,
        seed: int,
        *,
        name: str = "pool",
    ) -> None:
        """Raises ConfigurationError if no client has lengths, or none asks in the part that is taken.

        A client whose lengths were not published has those of one whose were, drawn by their load.
        """
        self._settings, self._seed, self._name = settings, seed, name
        self._windows = _by_client(windows, settings)
        tables = _tables(lengths)
        if not self._windows:
            raise ConfigurationError(["no client of the pool asks in the part of its days that is taken"])
        self._tables = {
            client: tables[client] if client in tables else tables[self._stand_in(client, tables)]
            for client in self._windows
        }

    def starts(self) -> Iterator[PlannedRequest]:
        """All of them."""
        return merge(*map(self._client, sorted(self._windows)), key=lambda planned: planned.at_s)

    def after(self, planned: PlannedRequest, ended_at_s: float, ok: bool) -> None:
        """Nothing."""

    def _client(self, client: int) -> Iterator[PlannedRequest]:
        sender = self._settings.sender
        if self._settings.tenant_per_client:
            sender = msgspec.structs.replace(sender, tenant=f"{sender.tenant}-{client}")
        tables = self._tables[client]
        starts = [start_s for start_s, _ in tables]
        for window in self._windows[client]:
            _, fields = tables[max(0, bisect_right(starts, window.start_s) - 1)]
            lengths = self._lengths(client, window, fields)
            for at_s in self._instants(client, window):
                yield sender.request(at_s, next(lengths))

    def _instants(self, client: int, window: ClientWindow) -> Iterator[float]:
        settings = self._settings
        start_s = window.start_s - settings.from_s
        end_s = min(start_s + WINDOW_S, settings.for_s)
        rng = dice(self._seed, self._name, "arrivals", client, int(window.start_s))
        rate_per_s = window.rate_per_s * settings.rate_factor
        for expected in accumulate(_gaps(window).gaps(rng)):
            at_s = start_s + expected / rate_per_s
            if at_s >= end_s:
                return
            yield at_s

    def _lengths(
        self, client: int, window: ClientWindow, fields: Mapping[str, Quantiles]
    ) -> Iterator[Lengths]:
        def draws(names: Iterable[str]) -> list[Iterator[int]]:
            there = [field for field in names if field in fields]
            rngs = [dice(self._seed, self._name, field, client, int(window.start_s)) for field in there]
            return [whole(fields[field].draws(rng), 0) for field, rng in zip(there, rngs, strict=True)]

        prompts, outputs = draws(PROMPT_FIELDS), draws([OUTPUT_FIELD])
        while True:
            yield Lengths.asked(sum(map(next, prompts)), sum(map(next, outputs)))

    def _stand_in(self, client: int, tables: Mapping[int, object]) -> int:
        known = sorted(set(tables) & set(self._windows)) or sorted(tables)
        if not known:
            raise ConfigurationError(["no client of the pool has lengths; give its client_lengths file"])
        loads = [sum(each.rate_per_s for each in self._windows.get(other, ())) or 1.0 for other in known]
        return dice(self._seed, self._name, "stand-in", client).choices(known, loads)[0]


def _by_client(
    windows: Iterable[ClientWindow], settings: ClientPoolSettings
) -> dict[int, list[ClientWindow]]:
    found: dict[int, list[ClientWindow]] = {}
    for each in windows:
        if settings.from_s <= each.start_s < settings.from_s + settings.for_s and each.rate_per_s > 0:
            found.setdefault(each.client, []).append(each)
    return found


def _tables(lengths: Iterable[ClientLengths]) -> dict[int, list[tuple[float, dict[str, Quantiles]]]]:
    """By client: (start of the window, its fields), ascending. Who lacks prompts or answers is out."""
    found: dict[int, dict[float, dict[str, Quantiles]]] = {}
    for each in lengths:
        found.setdefault(each.client, {}).setdefault(each.start_s, {})[each.field] = each.quantiles
    whole_ones = {
        client: sorted(
            (start_s, fields)
            for start_s, fields in windows.items()
            if OUTPUT_FIELD in fields and any(field in fields for field in PROMPT_FIELDS)
        )
        for client, windows in found.items()
    }
    return {client: windows for client, windows in whole_ones.items() if windows}


def _gaps(window: ClientWindow) -> Gaps:
    """The law that was published; where none fitted, independent arrivals."""
    if not window.pattern:
        return Memoryless()
    if window.cv < LEAST_CV:
        return Even()
    cv = min(window.cv, MOST_CV)
    return Gamma(cv) if window.pattern == "Gamma" else Weibull(cv)
