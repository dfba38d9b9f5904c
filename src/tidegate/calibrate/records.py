"""What do the records of a bench run say of an engine's steps?

Of each answer the decode phase is one observation: as many steps as it has tokens after the first, in the
time from its first token to its end, with all the sequences that decoded meanwhile and the prompts that were
computed meanwhile. Who was there for a part of it counts for that part. Prompts that had the engine to
themselves show prefill besides. All requests must have gone to one engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from tidegate.bench.load import LoadRecord
from tidegate.calibrate.held_out import split
from tidegate.calibrate.points import Point, name_of_batch, prompt_alone
from tidegate.core.errors import ConfigurationError
from tidegate.perf.regression import Observation

LEAST_TOKENS = 4
"""Of an answer; the end of a shorter one is more of the wire than of the engine."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of two tokens or more."""

    sent_at: float
    first_at: float
    ended_at: float
    prompt_tokens: int
    cached_tokens: int
    steps: int

    @property
    def step_s(self) -> float:
        return (self.ended_at - self.first_at) / self.steps

    def context_at(self, instant: float) -> float:
        """Tokens that its next step attends to."""
        return self.prompt_tokens + 1 + (instant - self.first_at) / self.step_s


def read_records(path: Path) -> list[LoadRecord]:
    """What `tidegate bench --out` has written. Raises ConfigurationError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError([f"--records {path}: {error.strerror}"]) from None
    decoder = msgspec.json.Decoder(LoadRecord)
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            what = "is not a record as `tidegate bench --out FILE` writes them, one per line"
            raise ConfigurationError([f"--records {path}:{number}: {what}: {error}"]) from None
    return records


def points_of(records: Sequence[LoadRecord], budget_tokens: int) -> list[Point]:
    """A point for each answer that was streamed, and for each prompt that was computed alone."""
    answers = sorted(
        (
            _Answer(
                sent_at=each.dispatched_at,
                first_at=each.first_token_at,
                ended_at=each.ended_at,
                prompt_tokens=each.prompt_tokens,
                cached_tokens=min(each.cached_tokens, each.prompt_tokens - 1),
                steps=each.output_tokens - 1,
            )
            for each in records
            if each.ok and each.first_token_at is not None and each.dispatched_at is not None
            if each.output_tokens >= 2 and each.ended_at > each.first_token_at and each.prompt_tokens > 0
        ),
        key=lambda each: each.first_at,
    )
    meanwhile = _meanwhile(answers)
    decoded = [
        _decode_phase(answer, others, budget_tokens)
        for answer, others in zip(answers, meanwhile, strict=True)
        if answer.steps >= LEAST_TOKENS - 1
    ]
    return [*split(decoded), *split(_alone(records, budget_tokens))]


def _meanwhile(answers: Sequence[_Answer]) -> list[list[_Answer]]:
    """For each, the others that decoded at some time while it did. `answers` are in order of first tokens."""
    others: list[list[_Answer]] = [[] for _ in answers]
    open_: list[tuple[float, int]] = []
    for index, answer in enumerate(answers):
        while open_ and open_[0][0] <= answer.first_at:
            heappop(open_)
        for _, other in open_:
            others[other].append(answer)
            others[index].append(answers[other])
        heappush(open_, (answer.ended_at, index))
    return others


def _decode_phase(answer: _Answer, others: Sequence[_Answer], budget_tokens: int) -> Point:
    steps, took_s = answer.steps, answer.ended_at - answer.first_at
    sequences = float(steps)
    context = steps * (answer.context_at(answer.first_at) + answer.context_at(answer.ended_at) - 1) / 2
    chunks = new = squared = 0.0
    for other in others:
        begin, end = max(answer.first_at, other.first_at), min(answer.ended_at, other.ended_at)
        shared = steps * (end - begin) / took_s
        sequences += shared
        context += shared * (other.context_at(begin) + other.context_at(end) - 1) / 2
        # Whose first token came with this one's was computed before it.
        if other.first_at > answer.first_at + answer.step_s / 2:
            chunks += -(-(other.prompt_tokens - other.cached_tokens) // budget_tokens)
            new += other.prompt_tokens - other.cached_tokens
            squared += other.prompt_tokens**2 - other.cached_tokens**2
    mean = sequences / steps
    return Point(
        name=name_of_batch(mean),
        observation=Observation(
            seconds=took_s,
            steps=steps,
            sequences=sequences + chunks,
            context_tokens=context,
            prefill_tokens=new,
            prefill_tokens_squared=squared,
        ),
        sequences=mean,
        context_tokens=context / steps,
    )


def _alone(records: Sequence[LoadRecord], budget_tokens: int) -> list[Point]:
    """Prompts that were sent when nothing else was open, and answered before anything else was sent."""
    sent = sorted(
        (each for each in records if each.dispatched_at is not None), key=lambda each: each.dispatched_at or 0
    )
    points, free_at = [], float("-inf")
    for index, each in enumerate(sent):
        sent_at, first_at = each.dispatched_at, each.first_token_at
        assert sent_at is not None
        next_at = sent[index + 1].dispatched_at if index + 1 < len(sent) else None
        lone = sent_at >= free_at and first_at is not None and (next_at is None or next_at >= first_at)
        free_at = max(free_at, each.ended_at)
        if lone and first_at is not None and each.ok and each.prompt_tokens > each.cached_tokens:
            points.append(
                prompt_alone(
                    "prompts alone",
                    first_at - sent_at,
                    each.prompt_tokens,
                    each.cached_tokens,
                    budget_tokens=budget_tokens,
                    held_out=False,
                )
            )
    return points
