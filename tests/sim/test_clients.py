"""Clients: who comes back, and when, is what the official SDK itself decides."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import httpx2
import pytest
from openai import OpenAI
from openai._models import FinalRequestOptions

from tests.policy.build import approx
from tidegate.core.reasons import ANSWERS, Reason
from tidegate.gateway.answers import refusal_headers
from tidegate.sim.clients import ClientSettings, Refusal, comes_back_after_s

SDK = OpenAI(api_key="any", base_url="http://127.0.0.1:1")


def sdk_says(status: int, headers: dict[str, str], retries: int) -> float | None:
    """Seconds after which the SDK itself comes back with its dice at 0.5; None if it does not."""
    response = httpx2.Response(status, headers=headers)
    if retries >= SDK.max_retries or not SDK._should_retry(response):
        return None
    options = FinalRequestOptions.construct(method="post", url="/")
    with patch("openai._base_client.random", return_value=0.5):
        return SDK._calculate_retry_timeout(SDK.max_retries - retries, options, response.headers)


class Half(Random):
    """Dice that show the middle."""

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("retries", range(4))
@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 422, 429, 500, 502, 503, 504])
def test_a_status_without_advice(status: int, retries: int) -> None:
    """An engine's own answer: by its status, after a back-off that doubles."""
    ours = comes_back_after_s(ClientSettings(), Refusal(status), retries, Half())

    assert ours == sdk_says(status, {}, retries)


@pytest.mark.parametrize("told_s", [None, 0.5, 3.0, 119.0, 120.0])
@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.CLIENT_GONE])
def test_a_refusal_of_the_gateway(reason: Reason, told_s: float | None) -> None:
    """As its headers say: whether at all, and after how long."""
    headers = {name.decode(): value.decode() for name, value in refusal_headers(reason, told_s)}
    answer = ANSWERS[reason]
    refusal = Refusal(answer.status, answer.retryable, (told_s or 1.0) if answer.retryable else None)

    assert comes_back_after_s(ClientSettings(), refusal, 0, Half()) == sdk_says(answer.status, headers, 0)


def test_told_to_wait_for_longer_than_two_minutes() -> None:
    """It does not come back at all."""
    ours = comes_back_after_s(ClientSettings(), Refusal(503, True, 121.0), 0, Half())

    assert ours is sdk_says(503, {"retry-after": "121"}, 0) is None


def test_who_obeys_nothing_backs_off_and_stops_after_its_retries() -> None:
    """Half a second, doubled up to eight, less up to a quarter; as often as it may."""
    waits = [
        comes_back_after_s(
            ClientSettings(max_retries=6, obeys=False), Refusal(503, False, 99.0), retries, Half()
        )
        for retries in range(8)
    ]

    assert waits == [approx(0.875 * each) for each in (0.5, 1.0, 2.0, 4.0, 8.0, 8.0)] + [None, None]
