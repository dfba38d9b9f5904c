"""What are prompts computed on some replicas and outputs decoded on others, and what is sent between them?

Each side is a continuous batch of its own (`steady`). A replica for prompts gives the first token; the keys
and values of a prompt then go over its link, one prompt after the other; a replica that decodes takes the
sequence as one whose prompt is cached but for the first token, and its first step gives the second token.
What requests meet there is in `pair`.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.perf.memory import delivered_bytes
from tidegate.plan.answer import Gates
from tidegate.plan.ask import Ask, Load, Replica, Terms
from tidegate.plan.bounds import gates_of
from tidegate.plan.disaggregated.front import Front, check_same_cache
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.disaggregated.source import BASE, Away, Prompts, Users, first_tokens_among
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.prefilling import Met, first_tokens, met_by
from tidegate.plan.laws.spread import Spread
from tidegate.plan.laws.steady import Steady, steady
from tidegate.plan.served import lengths_of

LINK_UTILISATION = 0.7
"""Of a link, at most: above it transfers wait for each other longer than they take (M/D/1: 1.2 times as long
at 0.7 in the mean, 2 times at 0.8)."""
FRESH_TOKENS = 1.0001
"""Of a prompt whose cache was delivered: its first output token, which the first step computes; a little
more, so that rounding never makes it none."""


class Side:
    """The replicas that compute prompts, or those that decode."""

    def __init__(self, engine: Engine, load: Load, terms: Terms) -> None:
        self.longest_tokens = min(engine.context_tokens, engine.kv_tokens)
        self.batch = Batch(engine, lengths_of(load))
        self.gates: Gates = gates_of(self.batch, terms)
        self.full = self.batch.saturated(self.gates.least) if self.gates.least else None
        self._gap_cv2 = load.gap_cv**2
        self._steady = lru_cache(maxsize=256)(self._computed)
        self._first_tokens = lru_cache(maxsize=256)(self._prefilled)
        self._met = lru_cache(maxsize=256)(self._found)

    @property
    def sustained_per_s(self) -> float:
        """Requests/s of one that is always as full as its gates let it be; 0 where not one request fits."""
        return self.full.requests_per_s if self.full is not None else 0.0

    def steady(self, rate_per_s: float, replicas: int) -> Steady | None:
        """At that rate for all of them; None where the queue would grow without end."""
        return self._steady(rate_per_s, replicas)

    def first_tokens(self, rate_per_s: float, replicas: int) -> Spread | None:
        """TTFT where nothing is decoded; None as above."""
        return self._first_tokens(rate_per_s, replicas)

    def first_tokens_among(self, away: Away, rate_per_s: float, replicas: int) -> Spread:
        """The same of users, about as many of whose prompts come in a second."""
        rate = min(rate_per_s, BASE * replicas * self.sustained_per_s)
        prompts = Prompts(
            met=self._met(rate, replicas),
            rate_per_s=rate,
            replicas=replicas,
            each_s=1 / self.sustained_per_s,
        )
        return first_tokens_among(away, prompts)

    def _computed(self, rate_per_s: float, replicas: int) -> Steady | None:
        arrivals = self._arrivals(rate_per_s, replicas)
        return None if arrivals is None else steady(self.batch, arrivals, self.gates.least)

    def _prefilled(self, rate_per_s: float, replicas: int) -> Spread | None:
        arrivals = self._arrivals(rate_per_s, replicas)
        return None if arrivals is None else first_tokens(self.batch, arrivals)

    def _found(self, rate_per_s: float, replicas: int) -> Met:
        return met_by(self.batch, Arrivals(rate_per_s=rate_per_s, cv2=self._gap_cv2, replicas=replicas))

    def _arrivals(self, rate_per_s: float, replicas: int) -> Arrivals | None:
        if rate_per_s >= replicas * self.sustained_per_s:
            return None
        return Arrivals(rate_per_s=rate_per_s, cv2=self._gap_cv2, replicas=replicas)


def prompts_of(load: Load) -> Load:
    """What the replicas for prompts are asked: one token of each request."""
    kinds = (msgspec.structs.replace(kind, output_tokens=1.0, output_cv=0.0) for kind in load.kinds)
    return msgspec.structs.replace(load, kinds=tuple(kinds))


def decodes_of(load: Load) -> Load:
    """What those that decode are asked: every token after the first, with the prompt in their cache.

    ConfigurationError where no request has a second token.
    """
    kinds = tuple(
        msgspec.structs.replace(
            kind,
            prompt_tokens=kind.prompt_tokens + 1,
            output_tokens=max(1.0, kind.output_tokens - 1),
            output_cv=kind.output_cv * kind.output_tokens / max(1.0, kind.output_tokens - 1),
        )
        for kind in load.kinds
        if kind.output_tokens > 1
    )
    if not kinds:
        raise ConfigurationError(["answers of one token are not decoded; leave --disaggregated out"])
    several = sum(kind.share for kind in kinds) / sum(kind.share for kind in load.kinds)
    prompt = Load(kinds=kinds).prompt_tokens
    rate = load.requests_per_s
    return msgspec.structs.replace(
        load,
        kinds=kinds,
        requests_per_s=None if rate is None else rate * several,
        prefix_hit_ratio=max(0.0, 1 - FRESH_TOKENS / prompt),
    )


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Of the keys and values of one prompt."""

    link: Link
    kv_bytes: float
    """Mean."""
    prompt_cv2: float

    @property
    def alone_s(self) -> float:
        """Of one that meets no other."""
        return self.sending_s + self.link.latency_s

    @property
    def sending_s(self) -> float:
        """For which it has the link to itself."""
        return self.kv_bytes / self.link.bytes_per_s

    def utilisation(self, rate_per_s: float, links: int) -> float:
        """Of each of so many links."""
        return rate_per_s * self.sending_s / links

    def needed_bytes_per_s(self, rate_per_s: float) -> float:
        """Of all links together: each is used to `LINK_UTILISATION` at most."""
        return rate_per_s * self.kv_bytes / LINK_UTILISATION

    def wait_s(self, rate_per_s: float, links: int, met: float = 1.0) -> Spread:
        """For those before it: M/G/1 in the mean (Pollaczek and Khinchine), with an exponential tail.

        `met`: share of them, 0..1, that can be in the way.
        """
        used = self.utilisation(rate_per_s, links)
        if used >= 1:
            return Spread.never()
        after_s = self.sending_s * (1 + self.prompt_cv2) / 2 / (1 - used)
        return Spread.of_tail(used * met, 1 / after_s)


class Sides:
    """Both kinds of replicas under a load and terms, however many there are.

    ConfigurationError where no request has a second token.
    """

    def __init__(self, ask: Ask, front: Front) -> None:
        load, terms = ask.load, ask.terms
        decode, prefill = ask.replica, front.prefill
        assert isinstance(decode, Replica)
        if front.link.kv_bytes_per_token is None:
            check_same_cache(prefill, decode)
        decodes = self.decodes = decodes_of(load)
        self.users = None if load.users is None else Users(count=load.users, think_s=load.think_s)
        """Whose prompts come; None: they come by themselves."""
        self.several = sum(kind.share for kind in decodes.kinds) / sum(kind.share for kind in load.kinds)
        """Of requests that have a second token, 0..1."""
        self.prefill = Side(prefill.engine, prompts_of(load), _within(terms, None))
        prompt = load.prompt_tokens
        square = sum(kind.share * kind.prompt_tokens**2 * (1 + kind.prompt_cv**2) for kind in load.kinds)
        square /= sum(kind.share for kind in load.kinds)
        self.transfer = Transfer(
            link=front.link,
            kv_bytes=_delivered_bytes(decode, front.link, prompt),
            prompt_cv2=max(0.0, square / prompt**2 - 1) if prompt else 0.0,
        )
        self.gaps = decodes.output_tokens
        """Between the tokens of a request, mean."""
        tpot_s = terms.budgets.tpot_s
        self.left_s = None if tpot_s is None else tpot_s - self.transfer.alone_s / self.gaps
        """Of the TPOT budget, once the cache has come; None: there is no such budget."""
        # As many sequences can come to it in a step as it has places, each with one token to compute.
        engine = decode.engine
        budget = min(engine.max_batched_tokens, 2 * engine.max_num_seqs)
        engine = msgspec.structs.replace(engine, max_batched_tokens=budget)
        self.decode = Side(engine, decodes, _within(terms, self.left_s))


def _within(terms: Terms, tpot_s: float | None) -> Terms:
    return msgspec.structs.replace(
        terms, budgets=Budgets(tpot_s=None if tpot_s is None else max(tpot_s, 1e-9))
    )


def _delivered_bytes(replica: Replica, link: Link, prompt_tokens: float) -> float:
    """Of the keys, values and states of a prompt, of the whole model."""
    if link.kv_bytes_per_token is not None:
        return link.kv_bytes_per_token * prompt_tokens
    assert replica.deployment is not None
    return delivered_bytes(replica.deployment, prompt_tokens)
