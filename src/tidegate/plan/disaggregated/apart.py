"""How fast are prompts computed on some replicas and outputs decoded on others, with a link between them?

Each side is a continuous batch of its own (`steady`). A replica for prompts gives the first token; the keys
and values of a prompt then go over its link, one prompt after the other; a replica that decodes takes the
sequence as one whose prompt is cached but for the first token, and its first step gives the second token. So
the first gap is the link and the way to the end of that step, and TPOT = (E2E - TTFT) / (output tokens - 1)
has it in it.

Laws of the parts are taken for independent.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, nan
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.records import Budgets
from tidegate.perf.memory import delivered_bytes
from tidegate.plan.answer import Gates, Percentiles
from tidegate.plan.ask import Ask, Load, Replica, Terms
from tidegate.plan.bounds import gates_of
from tidegate.plan.disaggregated.link import Link
from tidegate.plan.laws.batching import Batch
from tidegate.plan.laws.engine import Engine
from tidegate.plan.laws.population import Arrivals
from tidegate.plan.laws.prefilling import first_tokens
from tidegate.plan.laws.spread import LEVELS, Spread
from tidegate.plan.laws.steady import Steady, steady
from tidegate.plan.served import lengths_of
from tidegate.plan.station import Latencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Law = tuple[Floats, Floats]

LINK_UTILISATION = 0.7
"""Of a link, at most: above it transfers wait for each other longer than they take (M/D/1: 1.2 times as long
at 0.7 in the mean, 2 times at 0.8)."""
FRESH_TOKENS = 1.0001
"""Of a prompt whose cache was delivered: its first output token, which the first step computes; a little
more, so that rounding never makes it none."""
COARSE = 16
"""Into so many parts a law is cut that is only a small part of another."""


class Side:
    """The replicas that compute prompts, or those that decode."""

    def __init__(self, engine: Engine, load: Load, terms: Terms) -> None:
        self.batch = Batch(engine, lengths_of(load))
        self.gates: Gates = gates_of(self.batch, terms)
        self.full = self.batch.saturated(self.gates.least) if self.gates.least else None
        self._gap_cv2 = load.gap_cv**2
        self._steady = lru_cache(maxsize=256)(self._computed)
        self._first_tokens = lru_cache(maxsize=256)(self._prefilled)

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

    def _computed(self, rate_per_s: float, replicas: int) -> Steady | None:
        arrivals = self._arrivals(rate_per_s, replicas)
        return None if arrivals is None else steady(self.batch, arrivals, self.gates.least)

    def _prefilled(self, rate_per_s: float, replicas: int) -> Spread | None:
        arrivals = self._arrivals(rate_per_s, replicas)
        return None if arrivals is None else first_tokens(self.batch, arrivals)

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
        raise ConfigurationError(["answers of one token are not decoded: leave --disaggregated out"])
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

    def __init__(self, ask: Ask, prefill: Replica, link: Link) -> None:
        load, terms = ask.load, ask.terms
        decode = ask.replica
        assert isinstance(decode, Replica)
        decodes = self.decodes = decodes_of(load)
        self.several = sum(kind.share for kind in decodes.kinds) / sum(kind.share for kind in load.kinds)
        """Of requests that have a second token, 0..1."""
        self.prefill = Side(prefill.engine, prompts_of(load), _within(terms, None))
        prompt = load.prompt_tokens
        square = sum(kind.share * kind.prompt_tokens**2 * (1 + kind.prompt_cv**2) for kind in load.kinds)
        square /= sum(kind.share for kind in load.kinds)
        self.transfer = Transfer(
            link=link,
            kv_bytes=_delivered_bytes(decode, prompt),
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


def _delivered_bytes(replica: Replica, prompt_tokens: float) -> float:
    """Of the keys, values and states of a prompt, of the whole model."""
    if replica.deployment is None:
        raise ConfigurationError(
            ["--disaggregated: how large a KV cache is must be known of a replica; write --model and --gpu"]
        )
    return delivered_bytes(replica.deployment, prompt_tokens)


class Pair:
    """Both sides, with so many replicas for prompts."""

    def __init__(self, sides: Sides, prefill_replicas: int) -> None:
        self._prefill, self._decode, self._transfer = sides.prefill, sides.decode, sides.transfer
        self._several = sides.several
        self._prefill_replicas = prefill_replicas

    def latencies(self, rate_per_s: float, decode_replicas: int, percentile: float) -> Latencies | None:
        """Of requests of two tokens or more, at that percentile too. None where a queue grows."""
        import numpy as np

        p = percentile
        first = self._prefill.first_tokens(rate_per_s, self._prefill_replicas)
        rest = self._decode.steady(rate_per_s * self._several, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        if first is None or rest is None or sent.mean == inf:
            return None
        alone_s = self._transfer.alone_s
        gap = self._gap(sent, rest)
        e2e = _sum(_law(Spread.of(_sum(_law(first), _law(rest.e2e_s), alone_s))), _coarse(sent), 0.0)
        steps, share = (np.array(each) for each in zip(*self._decode.batch.lengths.outputs(), strict=True))
        tpot = _tpot(gap, rest.tpot_s, (steps, share))
        return Latencies(
            wait_s=_percentiles(rest.wait_s, p),
            ttft_s=_percentiles(first, p),
            tpot_s=_percentiles(tpot, p),
            e2e_s=_percentiles(Spread.of(e2e), p),
            itl_s=_percentiles(_itl(gap, rest.itl_s, float((steps * share).sum())), p),
            sequences=rest.sequences,
        )

    def first_gap_s(self, rate_per_s: float, decode_replicas: int, percentile: float) -> float:
        """From the first token to the second, at that percentile; inf where a queue grows for ever."""
        rate = rate_per_s * self._several
        rest = self._decode.steady(rate, decode_replicas)
        sent = self._sent(rate_per_s, decode_replicas)
        if rest is None or sent.mean == inf:
            return inf
        return Spread.of(self._gap(sent, rest)).quantile(percentile)

    def _sent(self, rate_per_s: float, decode_replicas: int) -> Spread:
        """The wait for the link. Prompts of one replica that fill its steps come one after the other: where
        one is sent while the next is computed, they wait for those of other replicas only.
        """
        prefill, transfer = self._prefill, self._transfer
        links = transfer.link.count(self._prefill_replicas, decode_replicas)
        senders = self._prefill_replicas / links
        apart = transfer.sending_s <= 1 / prefill.sustained_per_s
        fills = prefill.batch.prompt_tokens > prefill.batch.engine.max_batched_tokens / 2
        met = 1 - 1 / senders if apart and fills and senders >= 1 else 1.0
        return transfer.wait_s(rate_per_s * self._several, links, met)

    def _gap(self, sent: Spread, rest: Steady) -> Law:
        return _sum(_law(sent), _law(rest.ttft_s), self._transfer.alone_s)


def _tpot(gap: Law, tpot_s: Spread, steps: Law) -> Spread:
    """The first gap and the others, over all of them. `steps`: gaps of a request, and how often."""
    import numpy as np

    first = _coarse(Spread.of(gap))
    if tpot_s.mean != tpot_s.mean:  # nan: two output tokens, one gap
        return Spread.of(first)
    rest = _law(tpot_s)
    number, share = steps
    seconds = [np.add.outer(first[0] / each, rest[0] * (each - 1) / each).ravel() for each in number.tolist()]
    weights = [np.outer(first[1], rest[1]).ravel() * each for each in share.tolist()]
    return Spread.of((np.concatenate(seconds), np.concatenate(weights)))


def _itl(gap: Law, itl_s: Spread, steps: float) -> Spread:
    """One gap of so many is the first."""
    import numpy as np

    if itl_s.mean != itl_s.mean:
        return Spread.of(gap)
    first, rest = Spread.of(gap), _law(itl_s)
    whole = _law(first)
    return Spread.of(
        (np.concatenate([whole[0], rest[0]]), np.concatenate([whole[1], rest[1] * max(0.0, steps - 1)]))
    )


def _law(spread: Spread) -> Law:
    """What a spread says, as times and how often they come: between two levels, the time halfway."""
    import numpy as np

    at = np.array(spread.at)
    seconds = np.append((at[:-1] + at[1:]) / 2, at[-1])
    shares = np.diff(np.array([*LEVELS, 1.0]))
    return seconds, shares


def _coarse(spread: Spread) -> Law:
    """The same in few parts, each as likely as the others."""
    import numpy as np

    seconds = np.interp((np.arange(COARSE) + 0.5) / COARSE, np.array(LEVELS), np.array(spread.at))
    return seconds, np.full(COARSE, 1 / COARSE)


def _sum(one: Law, other: Law, more_s: float) -> Law:
    """Of two that do not depend on each other, later by so much."""
    import numpy as np

    return np.add.outer(one[0], other[0]).ravel() + more_s, np.outer(one[1], other[1]).ravel()


def _percentiles(spread: Spread, p: float) -> Percentiles:
    if spread.mean != spread.mean:
        return Percentiles.of(nan)
    return Percentiles(
        mean=spread.mean, p50=spread.p50, p95=spread.p95, p99=spread.p99, at_percentile=spread.quantile(p)
    )
