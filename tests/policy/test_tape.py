"""A tape's own rules: what a line says, what is withheld, and how a difference or a bad line is told."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.policy.build import EXACT, QUIET, ask, failed
from tests.policy.fleet import Weather, settings_of
from tidegate.core.errors import CallerError, ConfigurationError
from tidegate.core.messages import Arrived, Event, Evict, FailureKind, Finished, ReplicaAdded
from tidegate.policy.settings import GovernorSettings, PoolSettings
from tidegate.policy.tape import WITHHELD, Recorder, Tape, replay

SETTINGS = GovernorSettings(pools={"m": PoolSettings(prediction=EXACT, health=QUIET)})
JOINED = ReplicaAdded(pool="m", replica="r0", max_concurrency=1)


def tape_of(*calls: tuple[float, Event | None]) -> list[bytes]:
    """The tape of these calls."""
    lines: list[bytes] = []
    recorder = Recorder.of(SETTINGS, 7, lines.append)
    for now, event in calls:
        _ = recorder.on_wakeup(now) if event is None else recorder.handle(event, now)
        recorder.check()
    return lines


ORDINARY: list[tuple[float, Event | None]] = [
    (0.0, JOINED),
    (0.1, Arrived(ask(1))),
    (0.2, Arrived(ask(2))),
    (0.3, None),
    (0.75, Finished(1, 1, output_tokens=3)),
    (0.9, Finished(2, 1, output_tokens=3)),
]


def test_a_line_for_each_call_after_the_header() -> None:
    """JSON that any tool can read, each line whole, in the order of the calls."""
    header, *calls = [json.loads(line) for line in tape_of(*ORDINARY)]

    assert (header["tape"], header["seed"]) == (1, 7)
    assert list(header["settings"]["pools"]) == ["m"]
    assert [call["now"] for call in calls] == [now for now, _ in ORDINARY]
    assert [call["event"]["type"] if "event" in call else None for call in calls] == [
        *("ReplicaAdded", "Arrived", "Arrived", None, "Finished", "Finished")
    ]
    assert calls[4]["commands"][0]["request_id"] == 2


def test_lines_leave_at_once() -> None:
    """Nothing is kept back: the memory of a recording is its last line."""
    lines: list[bytes] = []
    recorder = Recorder.of(SETTINGS, 7, lines.append)
    assert len(lines) == 1

    recorder.handle(JOINED, 0.0)
    recorder.on_wakeup(0.5)

    assert len(lines) == 3
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


def test_it_replays() -> None:
    """A fresh governor says the same."""
    assert replay(Tape.read(tape_of(*ORDINARY))) is None


def test_the_first_difference_is_told() -> None:
    """Which line, what was told, what was answered then and what is now."""
    lines = tape_of(*ORDINARY)
    lines[1] = lines[1].replace(b'"max_concurrency":1', b'"max_concurrency":2')

    difference = replay(Tape.read(lines))

    assert difference is not None
    said = str(difference).splitlines()
    assert said[0].startswith("line 4, at 0.2: Arrived(request=Request(request_id=2,"), said
    assert said[1] == "  expected  no command"
    assert said[2].startswith("  got       Dispatch(request_id=2, attempt=1, replica='r0'")


def test_the_seed_is_the_tapes() -> None:
    """Dice decide: the same calls under another seed are another tape."""
    lines: list[bytes] = []
    recorder = Recorder.of(SETTINGS, 7, lines.append)
    for index in range(4):
        recorder.handle(ReplicaAdded(pool="m", replica=f"r{index}"), 0.0)
    for number in range(20):
        recorder.handle(Arrived(ask(number)), 1.0)
    assert replay(Tape.read(lines)) is None
    lines[0] = lines[0].replace(b'"seed":7', b'"seed":8')

    assert replay(Tape.read(lines)) is not None


def test_an_exception_is_on_the_tape_and_raised_again() -> None:
    """What the governor did wrong can be found by replaying, and is told to the driver as ever."""
    lines: list[bytes] = []
    recorder = Recorder.of(SETTINGS, 7, lines.append)
    recorder.handle(JOINED, 0.0)
    recorder.handle(Arrived(ask(1)), 0.1)

    with pytest.raises(CallerError):
        recorder.handle(Arrived(ask(1)), 0.5)

    assert json.loads(lines[-1])["raised"] == "CallerError('request 1 arrived twice')"
    assert replay(Tape.read(lines)) is None
    lines[-1] = lines[-1].replace(b"twice", b"once")
    assert "got       CallerError('request 1 arrived twice')" in str(replay(Tape.read(lines)))


def test_an_engines_words_are_withheld() -> None:
    """They may repeat the prompt: the client is told them, the tape is not, and it replays all the same."""
    lines: list[bytes] = []
    recorder = Recorder.of(SETTINGS, 7, lines.append)
    recorder.handle(JOINED, 0.0)
    recorder.handle(Arrived(ask(1)), 0.1)

    words = "cannot parse 'my secret prompt'"
    commands = recorder.handle(failed(1, FailureKind.SERVER_ERROR, status=500, detail=words), 0.2)

    evict = next(each for each in commands if isinstance(each, Evict))
    assert evict.detail.endswith(words)
    assert b"secret" not in b"".join(lines)
    assert lines[-1].count(WITHHELD.encode()) == 2
    assert replay(Tape.read(lines)) is None


def test_a_last_line_that_is_cut_off() -> None:
    """A process that was killed in the middle of a line: the rest of the tape is worth as much as ever."""
    lines = tape_of(*ORDINARY)
    tape = Tape.read([*lines[:-1], lines[-1][:-9]])

    assert replay(tape) is None
    assert tape.cut_off


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [], "line 1 is not the header of a tape"),
        (lambda lines: [b"\x00\xff\n"], "line 1 is not the header of a tape"),
        (lambda lines: lines[1:], "line 1 is not the header of a tape"),
        (
            lambda lines: [lines[0].replace(b'"tape":1', b'"tape":99')],
            "a tape of format 99; this is",
        ),
        (
            lambda lines: [lines[0].replace(b'"least_tokens"', b'"most_tokens"')],
            "settings of tidegate 0.1.0, which",
        ),
        (lambda lines: [*lines[:2], b"{}\n"], "line 3 is not a call that tidegate"),
        (lambda lines: [*lines[:4], b'{"now": NaN}\n'], "line 5 is not a call that tidegate"),
        (
            lambda lines: [lines[0], b'{"now": 1, "event": {"type": "Forgotten"}}\n'],
            "Invalid value 'Forgotten'",
        ),
    ],
    ids=["empty", "no text", "no header", "other format", "settings", "no call", "NaN", "unknown event"],
)
def test_what_is_no_tape(change: Callable[[list[bytes]], list[bytes]], said: str) -> None:
    """Which line, what is wrong with it, and what can be done."""
    with pytest.raises(ConfigurationError, match=said):
        replay(Tape.read(change(tape_of(*ORDINARY))))


def test_every_setting_comes_back_from_the_header() -> None:
    """Also those of another type than most: unions, enumerations, mappings in their order."""
    settings = settings_of(Weather(seed=1))
    lines: list[bytes] = []
    Recorder.of(settings, 2**64 - 1, lines.append)

    header = Tape.read(lines).header

    assert (header.settings, header.seed) == (settings, 2**64 - 1)
    assert list(header.settings.classes) == list(settings.classes)
