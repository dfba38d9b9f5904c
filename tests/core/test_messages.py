"""Messages: every event and command can be written to a tape and read back as what it was."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from tidegate.core.messages import (
    Command,
    Dispatch,
    Event,
    Failed,
    FailureKind,
    Finished,
    Quota,
    failure_of,
    mark_above,
)
from tidegate.core.request import Request, Usage


@pytest.mark.parametrize("union", [Event, Command])
def test_messages_can_be_told_apart_on_a_tape(union: type) -> None:
    """Each member of a union is frozen and carries a tag of its own."""
    members = get_args(union)
    tags = [member.__struct_config__.tag for member in members]
    assert len(set(tags)) == len(members)
    assert all(member.__struct_config__.frozen for member in members)


def test_a_tape_reads_back() -> None:
    """An event and a command survive the way through JSON unchanged."""
    events = [
        Failed(1, 2, FailureKind.STALLED, committed=True, retry_after_s=0.5),
        Finished(3, 1, usage=Usage(prompt_tokens=5, output_tokens=7)),
    ]
    tape = msgspec.json.encode(events)
    assert msgspec.json.decode(tape, type=list[Event]) == events
    command = Dispatch(1, 1, "r0", "m", degraded=("clamp=4",), quota=Quota(limit_tokens=9))
    assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command


def test_values_are_frozen() -> None:
    """What has been said cannot be changed by who hears it."""
    with pytest.raises(AttributeError):
        Finished(1, 1).status = 500  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Request(request_id=1, model="m", tenant="a", key="k", priority="p", prompt_bytes=0).tenant = "b"  # type: ignore[misc]


def test_no_attempt_failed_without_a_kind() -> None:
    """Kinds are stable labels: they stand in metrics and logs."""
    assert [kind.value for kind in FailureKind] == [
        "connect",
        "reset",
        "server_error",
        "busy",
        "denied",
        "garbage",
        "stalled",
    ]


def test_a_status_says_whose_failure_it_is() -> None:
    """A wrong request is the client's; a refused credential, a busy engine and a fault are the replica's."""
    for statuses, kind in [
        ((200, 400, 404, 422), None),
        ((401, 403), FailureKind.DENIED),
        ((429, 503), FailureKind.BUSY),
        ((500, 502, 504, 599), FailureKind.SERVER_ERROR),
    ]:
        assert [failure_of(status) for status in statuses] == [kind] * len(statuses)


@pytest.mark.parametrize(
    ("tokens", "mark"),
    [
        (0, 32),
        (31.9, 32),
        (32, 64),  # what is reserved need not be told
        (63.9, 64),
        (64, 128),
        (100.5, 128),
        (256, 512),
        (2**20 - 1, 2**20),
        (2**20, 2**21),
    ],
)
def test_the_first_mark_above(tokens: float, mark: int) -> None:
    """Marks are 32 and its doublings; whoever stands on one is told of the next."""
    assert mark_above(tokens) == mark
