"""How did the others fare, and what did the noisy one get? In the scenario's own seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tidegate.bench.load import LoadRecord
from tidegate.core.records import Distribution
from tidegate.demo.neighbours.scenario import NOISY, Rule
from tidegate.policy.settings import MINUTE_S


class OthersFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everybody but the noisy tenant."""

    requests: int
    started: int
    """Those that got a first token."""
    ttft_s: Distribution
    """Of these, from the planned instant to the first token, as the client saw it."""
    tpot_s: Distribution
    failed: dict[str, int]


class NoisyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The noisy tenant."""

    requests: int
    served: int
    tokens: int
    """Prompt and output of what was served to its end: what its quota was charged in the end."""
    refused: int
    failed: dict[str, int]
    """By reason, refusals among them."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    rule: str
    sent_s: float
    """How long requests were sent."""
    others: OthersFigures
    noisy: NoisyFigures
    lag_s: Distribution
    """How late the load generator was."""

    @property
    def noisy_tokens_per_minute(self) -> float:
        """What the noisy tenant got, over the time in which it sent."""
        return self.noisy.tokens * MINUTE_S / self.sent_s if self.sent_s > 0 else 0.0


def figures_of(rule: Rule, records: Sequence[LoadRecord], speed: float, sent_s: float) -> RunFigures:
    """From what clients saw of a fleet at `speed`; `sent_s` is in seconds of the scenario."""
    noisy = [record for record in records if record.tenant == NOISY]
    others = [record for record in records if record.tenant != NOISY]
    served = [record for record in noisy if record.ok]
    ttfts_s = [ttft_s * speed for record in others if (ttft_s := record.ttft_s) is not None]
    return RunFigures(
        rule=rule.name,
        sent_s=sent_s,
        others=OthersFigures(
            requests=len(others),
            started=len(ttfts_s),
            ttft_s=Distribution.of(ttfts_s),
            tpot_s=Distribution.of(t * speed for record in others if record.ok and (t := record.tpot_s)),
            failed=_failed(others),
        ),
        noisy=NoisyFigures(
            requests=len(noisy),
            served=len(served),
            tokens=sum(record.prompt_tokens + record.output_tokens for record in served),
            refused=sum(record.reason is not None for record in noisy),
            failed=_failed(noisy),
        ),
        lag_s=Distribution.of(r.queued_s * speed for r in records if r.dispatched_at is not None),
    )


def _failed(records: Sequence[LoadRecord]) -> dict[str, int]:
    kinds = Counter(
        record.reason.value if record.reason else record.error for record in records if record.error
    )
    return dict(kinds.most_common())
