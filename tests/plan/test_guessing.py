"""Where guesses pay, and from how many at once on they do not: told as it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.perf.shapes import LLAMA_8B, LLAMA_70B, device
from tidegate.core.records import Budgets
from tidegate.perf.deployment import Deployment
from tidegate.perf.heads import draft_model, eagle_head, lookup
from tidegate.perf.speculative import Draft, Speculation
from tidegate.plan.answer import Answer
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, Kind, Load, Replica, Terms
from tidegate.plan.deployed import deployed
from tidegate.plan.guessing import speculated
from tidegate.plan.sensitivity import changes_of
from tidegate.plan.speculated import Speculated

LOAD = Load(kinds=(Kind(prompt_tokens=200, output_tokens=400),), requests_per_s=5.0)
TERMS = Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.04))


def guessing(draft: Draft | None, ratio: float = 0.8, guesses: int = 4, **settings: Any) -> Replica:
    """70B on four devices."""
    found = None
    if draft is not None:
        found = Speculation(draft=draft, acceptance_ratio=ratio, draft_tokens=guesses)
    values: dict[str, Any] = {"tp": 4, "weights": "fp8"} | settings
    return deployed(Deployment(model=LLAMA_70B, accelerator=device(), speculation=found, **values))


def told(replica: Replica, gate: int = 64) -> Speculated:
    """What is told of it at that gate."""
    found = speculated(replica, LOAD, gate)
    assert found is not None
    return found


def answered(ask: Ask) -> Answer:
    """The plan, which there is."""
    found = answer_to(ask)
    assert isinstance(found, Answer)
    return found


def test_many_at_once_break_even_and_the_sentence_says_where() -> None:
    """A lookup that is right in 3 of 10: faster for one, slower from the number told on, and at 256."""
    found = told(guessing(lookup(), ratio=0.3, guesses=3), gate=200)
    at = found.break_even_concurrency
    assert at is not None
    assert 10 < at < 200
    before, beyond = (told(guessing(lookup(), ratio=0.3, guesses=3), gate=each) for each in (at - 1, at))
    assert before.token_at_gate_s < before.plain_token_at_gate_s
    assert beyond.token_at_gate_s >= beyond.plain_token_at_gate_s
    assert f"from {at:,} at once on it costs more than it gives" in found.because
    assert "n-gram lookup drafts 3 tokens a step, each right in 30%: 1.42 tokens per step" in found.because


@pytest.mark.parametrize(
    ("draft", "ratio", "break_even", "words"),
    [
        (eagle_head(LLAMA_70B), 0.9, None, "it pays up to 256 at once, the batch limit"),
        (draft_model(LLAMA_8B), 0.05, 1, "it never pays"),
    ],
)
def test_what_always_or_never_pays(draft: Draft, ratio: float, break_even: int | None, words: str) -> None:
    """Nearly all right from a layer; hardly any from a model of 8B that is run four times."""
    found = told(guessing(draft, ratio))
    assert found.break_even_concurrency == break_even
    assert found.because.endswith(f"{words}.")


def test_a_plan_with_guesses_needs_no_more_and_says_what_they_do() -> None:
    """An EAGLE head right in 80 %: TPOT falls by more than half at 5 requests/s, and the gate rises."""
    plain = answered(Ask(load=LOAD, replica=guessing(None), terms=TERMS))
    found = answered(Ask(load=LOAD, replica=guessing(eagle_head(LLAMA_70B)), terms=TERMS))
    assert plain.speculation is None
    assert found.speculation is not None
    assert found.tpot_s.mean < plain.tpot_s.mean / 2
    assert found.replicas <= plain.replicas
    assert found.concurrency_per_replica >= plain.concurrency_per_replica
    assert found.speculation.accepted_tokens_per_step == pytest.approx(3.3616)
    assert found.speculation.draft_tp == 4
    assert "tokens of each" in found.because or found.binding in ("batch", "kv_memory")
    assert not any("drafting" in each for each in found.warnings)


def test_users_meet_the_pace_of_tokens() -> None:
    """Closed loops count steps too: one user's TPOT is that of a step over what it yields, within 3 %."""
    replica = guessing(eagle_head(LLAMA_70B))
    load = msgspec.structs.replace(LOAD, requests_per_s=None, users=1)
    terms = msgspec.structs.replace(TERMS, replicas=1, spare_replicas=0)
    found = answered(Ask(load=load, replica=replica, terms=terms))
    assert found.tpot_s.mean == pytest.approx(told(replica).token_alone_s, rel=0.03)
    assert found.tpot_s.p95 > 1.05 * found.tpot_s.p50  # luck


def test_a_gate_beyond_break_even_is_warned_of() -> None:
    """With what would help."""
    terms = Terms(replicas=1, spare_replicas=0)
    load = msgspec.structs.replace(LOAD, requests_per_s=None)
    found = answered(Ask(load=load, replica=guessing(lookup(), ratio=0.2), terms=terms))
    (warning,) = (each for each in found.warnings if "drafting" in each)
    assert "at once, drafting makes tokens slower than they are without it; let in fewer than" in warning


def test_what_changes_it_turns_drafting_off() -> None:
    """And has guesses right less often, which is known the least."""
    ask = Ask(load=LOAD, replica=guessing(eagle_head(LLAMA_70B)), terms=TERMS)
    changes = {each.what: each for each in changes_of(ask)}
    plain = {each.what for each in changes_of(Ask(load=LOAD, replica=guessing(None), terms=TERMS))}
    assert {"no drafting", "an acceptance of 70%"} == set(changes) - plain
    here = answered(ask).requests_per_s_per_replica
    for name in ("no drafting", "an acceptance of 70%"):
        assert (changes[name].requests_per_s_per_replica or 0.0) < here


def test_measured_replicas_and_those_without_guesses_are_told_nothing() -> None:
    """There is nothing to compare with."""
    plain = guessing(None)
    assert speculated(plain, LOAD, 8) is None
    assert speculated(msgspec.structs.replace(plain, deployment=None), LOAD, 8) is None
