"""Questions about disaggregated replicas, and simulations of them, for the tests beside it."""

from __future__ import annotations

from collections.abc import Sequence as Row
from random import Random

from tidegate.catalog.catalog import Catalog
from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.plan.ask import Ask, Kind, Load, Replica, Terms
from tidegate.plan.deployed import deployed
from tidegate.plan.disaggregated.front import Front
from tidegate.plan.disaggregated.link import Link
from tidegate.sim.disaggregated import Disaggregated
from tidegate.sim.happening import FINISHED, Happening
from tidegate.sim.profiles import Profile
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import Disaggregation, ReplicaSettings
from tidegate.sim.settings import Link as SimulatedLink

CATALOG = Catalog.shipped()
PROMPT, OUTPUT = 8192, 150
TERMS = Terms(budgets=Budgets(ttft_s=3.0, tpot_s=0.05), per_hour_usd=2.95)
WIRE = Link(bytes_per_s=50e9)


def replica(model: str = "Llama-3.1-70B", tp: int = 4, gpu: str = "h100-sxm") -> Replica:
    """In 16 bits."""
    return deployed(Deployment(model=CATALOG.model(model), accelerator=CATALOG.accelerator(gpu), tp=tp))


def front(one: Replica, link: Link = WIRE) -> Front:
    """Prompts on such replicas."""
    return Front(prefill=one, link=link)


def ask_of(
    rate: float | None, one: Replica, prompt: float = PROMPT, output: float = OUTPUT, *, terms: Terms = TERMS
) -> Ask:
    """For equal requests."""
    load = Load(kinds=(Kind(prompt_tokens=prompt, output_tokens=output),), requests_per_s=rate)
    return Ask(load=load, replica=one, terms=terms)


class Fleet:
    """Simulated replicas of both kinds, one request being like the other."""

    def __init__(
        self, one: Replica, lengths: tuple[int, int], counts: tuple[int, int], bandwidth: float
    ) -> None:
        engine = one.engine
        assert one.memory is not None
        link = SimulatedLink(
            bandwidth_bytes_per_s=bandwidth, kv_bytes_per_token=one.memory.kv_bytes_per_token
        )
        parts = Disaggregation(link=link, prefill_replicas=counts[0], decode_replicas=counts[1])
        settings = ReplicaSettings(
            max_num_seqs=engine.max_num_seqs,
            max_batched_tokens=engine.max_batched_tokens,
            kv_tokens=engine.kv_tokens,
            context_tokens=engine.context_tokens,
        )
        profile = Profile(curve=engine.profile_curve, replica=settings, disaggregation=parts)
        self._fleet = Disaggregated(profile, Random(1))
        self._lengths = lengths
        self.arrived: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.ended: dict[int, float] = {}

    def next_at(self) -> float:
        """When something happens next."""
        return self._fleet.next_at()

    def come(self, now: float) -> None:
        """One more request."""
        number = len(self.arrived)
        self.arrived[number] = now
        assert self._fleet.submit(now, Sequence(number, *self._lengths)) is None

    def advance(self, now: float) -> list[int]:
        """Who has ended by now."""
        ended: list[int] = []
        for each in self._fleet.advance(now):
            self._see(each, ended)
        return ended

    def _see(self, each: Happening, ended: list[int]) -> None:
        number = each.sequence.id
        self.first.setdefault(number, each.at)
        if each.kind == FINISHED:
            self.ended[number] = each.at
            ended.append(number)

    def latencies(self, numbers: Row[int]) -> tuple[list[float], list[float], list[float]]:
        """TTFT, TPOT and E2E of these."""
        ttft = [self.first[number] - self.arrived[number] for number in numbers]
        e2e = [self.ended[number] - self.arrived[number] for number in numbers]
        gaps = self._lengths[1] - 1
        return ttft, [(e - t) / gaps for e, t in zip(e2e, ttft, strict=True)], e2e


def open_load(fleet: Fleet, rate: float, count: int = 1500) -> tuple[list[float], list[float], list[float]]:
    """TTFT, TPOT and E2E of Poisson arrivals, of all but the first tenth."""
    now, rng = 0.0, Random(7)
    for _ in range(count):
        now += rng.expovariate(rate)
        while (at := fleet.next_at()) <= now:
            fleet.advance(at)
        fleet.come(now)
    while len(fleet.ended) < count:
        fleet.advance(fleet.next_at())
    return fleet.latencies(range(count // 10, count))


def mean(values: Row[float]) -> float:
    """The mean."""
    return sum(values) / len(values)
