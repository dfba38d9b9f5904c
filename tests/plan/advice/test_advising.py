"""Is the advice what its arithmetic says? Figures worked out by hand."""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

import msgspec
import pytest

from tidegate.core.curve import Linear
from tidegate.core.records import Budgets
from tidegate.plan.advice.advising import advise
from tidegate.plan.advice.own_burst import REFUSED_SHARE, beyond_the_rate, burst_needed, refused_ratio
from tidegate.plan.advice.senders import Fleet, senders_of
from tidegate.plan.advised import Advice, rounded_down, rounded_up
from tidegate.plan.answer import Answer, Gates, Percentiles
from tidegate.plan.answering import answer_to
from tidegate.plan.ask import Ask, ClassBudgets, HandFigures, Kind, Load, Replica, Terms
from tidegate.plan.laws.engine import Engine
from tidegate.plan.tenants import Tenant, longest, tenants_of

ENGINE = Engine(
    curve=Linear(a_s=0.01, d_s_per_prefill_token=1e-4),
    max_num_seqs=10,
    max_batched_tokens=1_010,
    kv_tokens=20_000,
    context_tokens=8_192,
)
"""A step takes 10 ms, and 0.1 ms for each prompt token; 1,000 of those fit beside 10 sequences."""
LOAD = Load(kinds=(Kind(prompt_tokens=1_000, output_tokens=100),), requests_per_s=2.0)


def asked(ttft_s: float | None = None, load: Load = LOAD, engine: Engine = ENGINE, **terms: Any) -> Ask:
    budgets = Budgets(ttft_s=ttft_s, tpot_s=terms.pop("tpot_s", None), e2e_s=terms.pop("e2e_s", None))
    terms = {"spare_replicas": 0} | terms
    return Ask(load=load, replica=Replica(name="r", engine=engine), terms=Terms(budgets=budgets, **terms))


def answered(replicas: int = 2, per_s: float = 2.0, sequences: int = 10, **fields: Any) -> Answer:
    """So many replicas that sustain so many requests per second each."""
    hand = Ask(load=LOAD, replica=HandFigures(tokens_per_s=2_000, tpot_s=0.02))
    any_answer = answer_to(hand)
    assert isinstance(any_answer, Answer)
    figures: dict[str, Any] = {
        "replicas": replicas,
        "spare_replicas": 0,
        "requests_per_s": 2.0,
        "utilisation": 2.0 / (replicas * per_s),
        "concurrency_per_replica": sequences,
        "gates": Gates(batch=sequences),
        "requests_per_s_per_replica": per_s,
        "output_tokens_per_s_per_replica": 100 * per_s,
        "prompt_tokens_per_s_per_replica": 1_000 * per_s,
        "wait_s": Percentiles.of(0.0),
        "ttft_s": Percentiles.of(0.2),
        "tpot_s": Percentiles.of(0.02),
        "e2e_s": Percentiles.of(2.0),
    }
    return msgspec.structs.replace(any_answer, **(figures | fields))


def two(ttft_s: float | None, requests_per_s: float = 1e-3, **terms: Any) -> Advice:
    """Two tenants alike on two replicas, who are planned to send next to nothing."""
    ask = asked(ttft_s, **terms)
    answer = answered(requests_per_s=requests_per_s)
    return advise(ask, answer, tenants_of(ask.load, {"a": 1.0, "b": 1.0}))


def test_way_one() -> None:
    """4 replicas of 40 places at 20 ms a token: 10 requests/s planned, 11.2 admitted, 48 places free."""
    load = Load(kinds=(Kind(prompt_tokens=0, output_tokens=500),), requests_per_s=10)
    ask = Ask(
        load=load,
        replica=HandFigures(tokens_per_s=2000, tpot_s=0.02),
        terms=Terms(budgets=Budgets(ttft_s=1.0, tpot_s=0.02)),
    )
    answer = answer_to(ask)
    assert isinstance(answer, Answer)
    advice = advise(ask, answer)
    (tenant,) = advice.tenants.values()

    assert advice.gate.max_concurrency.value == 40
    assert advice.gate.kv_tokens.value is advice.gate.max_prefill_tokens.value is None
    assert tenant.tokens_per_minute.value == 60 * 11.2 * 500
    # 48 x 500 tokens start at once, 5,600 tokens/s start within 979 ms, less one request of 500.
    assert tenant.burst_s.value == rounded_down((24_000 + 5_600 * 0.979 - 500) / 5_600) == 5.17
    assert tenant.ttft_bound_s.value == pytest.approx(0.021 + (5.17 * 5_600 + 500 - 24_000) / 5_600)
    assert tenant.holds_budget
    assert advice.queue.max_wait_s["default"].value == pytest.approx(log(0.001) / log(0.05) - 0.021, abs=1e-3)
    assert advice.queue.max_requests.value == 27  # 3 replicas x 4 requests/s x 2.285 s
    assert advice.queue.max_tokens.value == 27 * 500
    assert advice.routing.value == "least_tokens"
    assert advice.warnings == ()


@pytest.mark.parametrize(
    ("ttft_s", "burst_tokens", "bound", "holds"),
    [
        # T = 2000/9091 + 1000/18182 + 0.11 + 0.001 = 0.386 s; g = 9,091 tokens/s; the largest is 1,100.
        (0.7, 9_090.9 * (0.7 - 0.386) - 1_100, "prefill", True),
        # 6 places are free for 6,600 tokens, and 1.4 requests/s of 1,100 tokens come free.
        (4.0, 6_600 + 1_540 * (4.0 - 0.386) - 1_100, "places", True),
        (0.6, 1_100, "largest request", False),
        (None, 60 * 1_540, "60 s of its rate", None),
    ],
)
def test_bursts(ttft_s: float | None, burst_tokens: float, bound: str, holds: bool | None) -> None:
    """A burst is what the TTFT budget leaves by prefill or by places, never less than the largest request."""
    advice = two(ttft_s)
    tenant = advice.tenants["a"]

    assert tenant.guaranteed_tokens_per_s == pytest.approx(9_090.9, rel=1e-4)
    assert tenant.burst_tokens == pytest.approx(burst_tokens, rel=0.01)
    assert burst_tokens == 1_100 or tenant.burst_tokens <= burst_tokens * (1 + 1e-3)
    assert bound in tenant.burst_s.reason
    assert tenant.holds_budget is holds
    assert tenant.tokens_per_minute.value == 60 * 1.4 * 2_000  # credits: an output token costs ten
    assert any("the budget is" in each for each in advice.warnings) is (holds is False)


def test_what_is_planned_is_let_in() -> None:
    """A burst is no shorter than a tenant's own requests need; what the budget allows is told beside it."""
    tenant = two(0.7, requests_per_s=1.0).tenants["a"]

    # 0.5 requests/s of 1.4: 5.23 requests, of 1,100 tokens, are one time in 1,000 too few.
    assert tenant.burst_tokens == pytest.approx(5.23 * 1_100, rel=0.01)
    assert tenant.burst_within_budget_tokens == pytest.approx(9_090.9 * (0.7 - 0.386) - 1_100, rel=0.01)
    assert tenant.refused_ratio == pytest.approx(REFUSED_SHARE, rel=0.05)
    assert tenant.holds_budget is False
    assert "its own planned requests need it" in tenant.burst_s.reason


def test_short_answers_beside_long_ones() -> None:
    """Until answers are learned as much is reserved for short ones as for the longest, which is told."""
    kinds = (
        Kind(prompt_tokens=100, output_tokens=10, share=10, tenant="short"),
        Kind(prompt_tokens=100, output_tokens=400, share=1, tenant="long"),
    )
    advice = advise(asked(2.0, Load(kinds=kinds, requests_per_s=2.0)), answered())
    short, long = advice.tenants["short"], advice.tenants["long"]

    assert long.refused_at_first_ratio == pytest.approx(long.refused_ratio)
    assert short.refused_at_first_ratio > 2 * short.refused_ratio
    assert advice.prediction.output_tokens.value == 400


def test_token_weights() -> None:
    """Credits are the seconds that one more token takes, of prompts, of cached prompts and of outputs."""
    reads = msgspec.structs.replace(
        ENGINE, curve=Linear(a_s=0.01, c_s_per_context_token=1e-6, d_s_per_prefill_token=1e-4)
    )
    for engine, input_s, cached_s, output_s in [
        (ENGINE, 1e-4, 0.0, 0.01 / 10),
        # Each of 100 output tokens reads the prompt: 100 x 1 us; ten contexts of 1,050 are 10.5 ms a step.
        (reads, 1e-4 + 1e-4, 1e-4, (0.01 + 0.0105) / 10),
    ]:
        weights = advise(asked(1.0, engine=engine), answered()).weights

        assert weights.input.value == 1.0
        assert weights.cached_input.value == pytest.approx(cached_s / input_s, rel=0.01)
        assert weights.output.value == pytest.approx(output_s / input_s, rel=0.01)


def test_gates() -> None:
    """Of each replica: what the answer's gates say, whole blocks, and two steps of prompts or half a TTFT."""
    gate = two(4.0).gate
    assert gate.max_concurrency.value == 10
    assert gate.kv_tokens.value == 20_000 - 10 * 15
    assert gate.max_prefill_tokens.value == 2_000
    assert two(0.3).gate.max_prefill_tokens.value == 1_363  # 9,091 tokens/s for 150 ms
    assert two(0.1).gate.max_prefill_tokens.value == 1_000

    shared = asked(4.0, msgspec.structs.replace(LOAD, prefix_hit_ratio=0.5))
    gate = advise(shared, answered()).gate
    assert gate.max_prefill_tokens.value == 4_000  # half of which is computed
    assert gate.kv_tokens.value == int(19_850 * 1_100 / 600)


def test_split_and_deadlines() -> None:
    """TTFT is the queue's, the prompt's and the way's; a deadline is where one in a thousand still waits."""
    advice = two(1.0, tpot_s=0.03, percentile=0.99)
    split = advice.budgets
    assert split.prefill_s.value == pytest.approx(0.11)
    assert split.queue_s.value == pytest.approx(1 - 0.11 - 0.11 - 0.001)
    assert split.tpot_s.value == 0.03
    assert split.e2e_s.value == pytest.approx(1 + 99 * 0.03)
    assert advice.deadlines.ttft_s.value == 1.5  # ln 0.001 / ln 0.01
    assert advice.deadlines.total_s.value == pytest.approx(1.5 + 2 * 99 * 0.03, rel=0.01)
    assert advice.queue.max_wait_s["default"].value == pytest.approx(1.5 - 0.221)

    # Without any budget nothing is known to be lost: the gateway's own defaults.
    advice = two(None)
    assert advice.deadlines.ttft_s.value == 120
    assert advice.queue.max_wait_s["default"].value == 30.0

    # What is streamed for 2.97 s has the rest of E2E to begin.
    advice = two(None, tpot_s=0.03, e2e_s=4.0, percentile=0.99)
    assert advice.deadlines.ttft_s.value == rounded_up(1.5 * 4.0 - 99 * 0.03)


def test_degradation_begins_while_there_is_time() -> None:
    """3.08 requests/s over 2 that are sustained fill the queue; a step begins as early as it takes."""
    ask = asked(10.0, load=msgspec.structs.replace(LOAD, requests_per_s=2.0))
    advice = advise(ask, answered(replicas=1))
    queue = advice.queue.max_requests.value
    assert queue is not None
    fill_s = queue / (1.54 * 2 - 2)
    clamp, fallback, shed = advice.degradation

    assert (clamp.step, fallback.step, shed.step) == ("clamp", "fallback", "shed")
    assert clamp.max_tokens == 65  # 100 x 2 / 3.08
    assert clamp.above == round(min(0.8, 1 - 65 * 0.01 / fill_s), 2)
    assert shed.above == max(fallback.above, round(min(0.95, 1 - 1 / fill_s), 2))
    assert all(each.below < each.above for each in advice.degradation)
    # There is no other pool, and in one class a full queue refuses more justly than shedding does.
    assert [each.active for each in advice.degradation] == [True, False, False]

    # With a TTFT budget of 0.3 s the queue is full before an answer of 195 tokens has ended.
    longer = Load(kinds=(Kind(prompt_tokens=1_000, output_tokens=300),), requests_per_s=2.0)
    clamp = advise(asked(0.3, longer), answered(replicas=1)).degradation[0]
    assert not clamp.active
    assert "By then the queue is full" in clamp.reason

    classes = tuple(msgspec.structs.replace(LOAD.kinds[0], class_=name) for name in ("chat", "batch"))
    ask = asked(10.0, load=Load(kinds=classes, requests_per_s=2.0))
    shed = advise(ask, answered(replicas=1)).degradation[-1]
    assert shed.active
    assert shed.classes == ("batch",)


def test_routing() -> None:
    """By prefix only where prefixes are planned to hit, and there is a choice."""
    shared = msgspec.structs.replace(LOAD, prefix_hit_ratio=0.4)
    for load, replicas, policy in [
        (LOAD, 2, "least_tokens"),
        (shared, 2, "prefix_affinity"),
        (shared, 1, "least_tokens"),
    ]:
        routing = advise(asked(1.0, load), answered(replicas)).routing
        assert routing.value == policy
        assert routing.reason


def test_a_long_prompt_of_another() -> None:
    """Prompts longer than the gate take replicas of their own; the others share what is left."""
    kinds = (
        Kind(prompt_tokens=500, output_tokens=100, share=99, tenant="chat"),
        Kind(prompt_tokens=8_000, output_tokens=100, share=0.001, tenant="long"),
    )
    ask = asked(1.0, Load(kinds=kinds, requests_per_s=2.0))
    chat, long = (advise(ask, answered(4)).tenants[name] for name in ("chat", "long"))

    # The long prompts take 1 of 4 replicas, and the chat has the other 3 to itself.
    assert chat.guaranteed_tokens_per_s == pytest.approx(3 * 9_090.9, rel=1e-3)
    assert chat.holds_budget
    assert long.burst_tokens >= 8_100

    # Of a single replica there is none left: a chat may find all of a long prompt before it.
    chat = advise(ask, answered(1)).tenants["chat"]
    assert chat.ttft_bound_s.value is not None
    assert chat.ttft_bound_s.value > 8_000 / 9_090.9


@pytest.mark.parametrize("ttft_s", [0.2, 0.5])
def test_a_budget_that_another_may_break_refuses_nobody_who_finds_a_place(ttft_s: float) -> None:
    """A prompt of 8,000 tokens may take all of a TTFT budget: short ones still have what places are free."""
    kinds = (
        Kind(prompt_tokens=500, output_tokens=100, share=0.5, tenant="chat"),
        Kind(prompt_tokens=8_000, output_tokens=100, share=0.5, tenant="long"),
    )
    chat = advise(asked(ttft_s, Load(kinds=kinds, requests_per_s=2.0)), answered()).tenants["chat"]

    # As long as 3,600 tokens find free places, less a request of its own that is under way.
    assert chat.burst_tokens == pytest.approx(3_600 - 600, rel=0.01)
    assert chat.refused_ratio < 0.005
    assert chat.holds_budget is False
    assert "in the 0s that are left" in chat.burst_s.reason


def test_a_bucket_as_a_queue() -> None:
    """What finds a bucket empty: Erlang's loss at one request, all that is too much under overload."""
    for load, burst, cv2, refused in [
        (0.5, 1, 1.0, 0.5 / 1.5),
        (0.5, 20, 1.0, 0.0),
        (2.0, 50, 1.0, 0.5),
        (1.0, 9, 2.0, 1 / 10),  # M/M/1/9
        (1.0, 9, 1.0, 1 / 18),  # half as much is refused where sizes do not differ
    ]:
        assert refused_ratio(load, burst, cv2) == pytest.approx(refused, abs=0.01)


def test_a_bucket_that_is_deep_enough() -> None:
    """It refuses one in a thousand, and for more than its rate none is deep enough."""
    for load, cv2 in [(0.5, 1.0), (0.9, 2.0), (0.1, 1.0)]:
        assert refused_ratio(load, burst_needed(load, cv2), cv2) == pytest.approx(REFUSED_SHARE)
    assert burst_needed(0.0005, 1.0) == 1
    assert burst_needed(1.0, 1.0) == burst_needed(2.0, 1.0) == float("inf")


def test_a_class_is_advised_by_its_own_budgets() -> None:
    """Each waits as long as its own TTFT allows; a pool's deadlines are of the class that may take longest.

    Limits of a tenant are bounded by the budgets of the classes that it asks in; none bounds who has none.
    """
    kinds = (
        Kind(prompt_tokens=500, output_tokens=50, share=2, tenant="a", class_="chat"),
        Kind(prompt_tokens=1_000, output_tokens=100, share=1, tenant="b", class_="batch"),
    )
    classes = (
        ClassBudgets(name="chat", budgets=Budgets(ttft_s=1.0)),
        ClassBudgets(name="batch", budgets=Budgets(e2e_s=60.0)),
    )
    load = Load(kinds=kinds, requests_per_s=3.0)
    question = asked(1.0, load, e2e_s=60.0, classes=classes)
    answer = answer_to(question)
    assert isinstance(answer, Answer)
    found = advise(question, answer)

    def alone(**budgets: float) -> Advice:
        terms = Terms(budgets=Budgets(**budgets), spare_replicas=0)
        return advise(msgspec.structs.replace(question, terms=terms), answer)

    chat, batch = alone(ttft_s=1.0), alone(e2e_s=60.0)
    assert found.queue.max_wait_s == {
        "chat": chat.queue.max_wait_s["chat"],
        "batch": batch.queue.max_wait_s["batch"],
    }
    assert found.deadlines.ttft_s == batch.deadlines.ttft_s
    assert found.tenants["a"].burst_within_budget_tokens is not None
    assert found.tenants["b"].burst_within_budget_tokens is None
    assert found.tenants["b"].burst_s.value == pytest.approx(60)


def test_a_bucket_holds_what_is_reserved_before_answers_are_learned() -> None:
    """Of 6 requests/s, each 0.5 s under way, three hold 950 - 50 output tokens too many, at 1 credit each."""
    short = Kind(prompt_tokens=500, output_tokens=50, share=3, tenant="short")
    long = Kind(prompt_tokens=500, output_tokens=950, share=1, tenant="long")
    fleet = Fleet(
        replicas=1,
        prefill_tokens_per_s=inf,
        admitted_per_s=20.0,
        request_credits=775.0,
        free_places=100.0,
        gate_tokens=0.0,
        step_s=0.01,
        delivery_s=0.0,
        credits=(1.0, 1.0, 1.0),
        hit_ratio=0.0,
        first_output_tokens=950.0,
        ttft_mean_s=0.1,
        tpot_mean_s=0.008,
    )
    load = Load(kinds=(short, long), requests_per_s=8.0)
    one, other = senders_of(tenants_of(load, {}), 8.0)

    assert one.unlearned_credits(fleet) == pytest.approx(6 * (0.1 + 50 * 0.008) * 900)
    assert other.unlearned_credits(fleet) == 0


def test_users_who_begin_together_are_let_in() -> None:
    """100 who never think are 100 at once; who thinks 1 s at 20 requests/s is 100 - 20 (1 + ln 5) = 47.8
    ahead, at 1.6 s; and of those who think 5 s the rate lets in as many as come.
    """
    for think_s, beyond in [(0.0, 100.0), (1e-6, 100.0), (1.0, 47.81), (4.9, 0.04), (5.0, 0.0), (90.0, 0.0)]:
        assert beyond_the_rate(100, think_s, 20.0) == pytest.approx(beyond, abs=0.02), think_s
    ahead = max(100 * (1 - exp(-t / 100)) - 20 * t / 100 for t in range(1000))
    assert beyond_the_rate(100, 1.0, 20.0) == pytest.approx(ahead, rel=1e-3)

    users = Load(kinds=LOAD.kinds, users=20)
    question = asked(1.0, users, target_utilisation=1.0)
    found = answer_to(question)
    assert isinstance(found, Answer)
    own = advise(question, found).tenants["default"]
    assert own.burst_tokens == pytest.approx(20 * 1_100, rel=0.01)
    assert "its users may all begin in the same instant" in own.burst_s.reason


def test_tenants_of_a_load() -> None:
    """Those that it names, with their shares of it; those of the weights where it names none."""
    kinds = (
        Kind(prompt_tokens=1, output_tokens=1, share=3, tenant="a"),
        Kind(prompt_tokens=9, output_tokens=1, share=1, tenant="b"),
    )
    named = Load(kinds=kinds)
    assert [(each.name, each.weight, each.load_share) for each in tenants_of(named, {"b": 2.0})] == [
        ("a", 1.0, 0.75),
        ("b", 2.0, 0.25),
    ]
    assert [each.kinds for each in tenants_of(named, {})] == [kinds[:1], kinds[1:]]
    assert [(each.name, each.load_share) for each in tenants_of(LOAD, {"x": 3.0, "y": 1.0})] == [
        ("x", 0.75),
        ("y", 0.25),
    ]
    assert tenants_of(LOAD, {}) == (Tenant(kinds=LOAD.kinds),)
    twice = Load(kinds=(*kinds, *kinds))
    assert [each.kinds[0].share for each in tenants_of(twice, {})] == [6, 2]
    with pytest.raises(Exception, match="tenant c: the load has no requests of it; it has those of a, b"):
        tenants_of(named, {"c": 1.0})


def test_lengths_that_vary() -> None:
    """A burst holds the longest request: of lengths that vary, one in a thousand is longer."""
    kinds = (msgspec.structs.replace(LOAD.kinds[0], output_cv=1.0),)
    advice = advise(asked(0.5, Load(kinds=kinds, requests_per_s=1e-3)), answered(requests_per_s=1e-3))

    assert longest(100, 0) == 100
    assert longest(100, 1.0) == pytest.approx(100 * exp(3.09 * log(2) ** 0.5) / 2**0.5)
    assert advice.tenants["default"].burst_tokens >= 1_000 + longest(100, 1.0)


def test_rounding() -> None:
    """To three digits, down or up, and what is round already stays."""
    for value, down, up in [(1.2345, 1.23, 1.24), (1.2, 1.2, 1.2), (98765, 98700, 98800), (0, 0, 0)]:
        assert rounded_down(value) == down
        assert rounded_up(value) == up
