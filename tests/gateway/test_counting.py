"""Tokens that a stream has shown, parsed and unparsed."""

from __future__ import annotations

from tidegate.gateway.counting import TokenCount

TEXT, THOUGHT = b'"content"', b'"reasoning"'


def test_a_kind_is_learned_from_two_events_and_forgotten_by_none() -> None:
    """The first event may carry a role as well: the least overhead is the true one, per kind."""
    count = TokenCount(bytes_per_token=4.0)

    for kind, event_bytes, content_bytes, steady in [
        (THOUGHT, 220, 4, False),  # with a role
        (THOUGHT, 204, 4, True),
        (TEXT, 194, 4, False),
        (TEXT, 194, 4, True),
        (THOUGHT, 204, 4, True),  # known already
    ]:
        count.add_parsed(kind, event_bytes, content_bytes, sized=True)
        assert count.steady == steady, (kind, event_bytes)
    assert count.tokens == 5

    count.add_plain(10, 10 * (200 + 12))
    assert count.tokens == (5 * 4 + 10 * 12) // 4


def test_bytes_count_only_while_they_are_content() -> None:
    """From the first event with log-probabilities on, only events are counted."""
    count = TokenCount(bytes_per_token=4.0)
    count.add_parsed(TEXT, 1000, 4, sized=False)
    count.add_parsed(TEXT, 3000, 4, sized=False)
    count.add_plain(3, 60_000)

    assert count.tokens == 5
