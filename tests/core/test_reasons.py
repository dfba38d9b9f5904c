"""Reasons: one table says each over HTTP, and clients are told to come back only where that helps."""

from __future__ import annotations

from tidegate.core.reasons import ANSWERS, INVALID, LIMITED, Reason


def test_every_reason_has_its_answer() -> None:
    """A reason without a status would be found only when it first happens."""
    assert set(ANSWERS) == set(Reason)
    assert all(400 <= answer.status <= 599 for answer in ANSWERS.values())


def test_labels_are_stable_and_distinct() -> None:
    """Labels are metric values and error codes: lower-case words, each once."""
    labels = [reason.value for reason in Reason]
    assert len(set(labels)) == len(labels)
    assert all(label.replace("_", "").isalpha() and label.islower() for label in labels)


def test_only_what_may_pass_is_retryable() -> None:
    """429 and 503 are worth a later try; what the caller did, or what has cost an engine already, is not."""
    for reason, answer in ANSWERS.items():
        assert answer.retryable is (answer.status in (429, 503)), reason


def test_quota_is_told_from_capacity() -> None:
    """A tenant's own limit is a 429 of its own type; a fleet that is short is never one."""
    for reason, answer in ANSWERS.items():
        assert (answer.status == 429) is (answer.error_type == LIMITED), reason
        if answer.error_type == INVALID:
            assert 400 <= answer.status < 500, reason
