"""A tape on the disk: who may read it, what stops it, and what `tape check` says of it."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.policy.test_tape import ORDINARY, tape_of
from tidegate.cli import command_line
from tidegate.core.errors import ConfigurationError
from tidegate.gateway import tapes
from tidegate.gateway.tapes import TapeFile

run = CliRunner().invoke


def written(path: Path, *calls: bytes) -> bytes:
    """What a file holds after these lines."""
    tape = TapeFile(path)
    for line in calls:
        tape.write(line)
    tape.close()
    return path.read_bytes()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """Whatever the umask: it says who asked when, and for how much."""
    before = os.umask(0)
    try:
        assert written(tmp_path / "tape", b"one\n", b"two\n") == b"one\ntwo\n"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tape").stat().st_mode) == 0o600


def test_a_file_that_exists_is_not_touched(tmp_path: Path) -> None:
    """Neither an older tape, nor what a link points to."""
    (tmp_path / "tape").write_text("older")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    for name in ("tape", "link"):
        with pytest.raises(ConfigurationError, match="exists; move it, or name another file"):
            TapeFile(tmp_path / name)
    assert (tmp_path / "tape").read_text() == "older"
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(ConfigurationError, match="cannot be made: No such file or directory"):
        TapeFile(tmp_path / "nowhere" / "tape")


def test_a_full_disk_stops_the_tape_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What fitted is there, one line is in the log, and writing goes on to cost nothing."""
    left = 10

    def write(file: int, data: memoryview) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(left, len(data), 4)
        left -= taken
        return real(file, data[:taken])

    real: Callable[[int, memoryview], int] = os.write
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(tapes, "WRITE_EVERY_S", 0.001)
    with caplog.at_level(logging.ERROR):
        tape = TapeFile(tmp_path / "tape")
        tape.write(b"0123456789abc\n")
        while not caplog.records:
            tape.write(b"more\n")
        for _ in range(100):
            tape.write(b"more\n")
        tape.close()

    assert (tmp_path / "tape").read_bytes() == b"0123456789"
    assert [record.getMessage() for record in caplog.records] == [
        f"the tape {tmp_path / 'tape'} ends here: No space left on device; requests are served as before"
    ]


def test_a_slow_disk_stops_the_tape_before_memory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits for the disk is bounded."""
    monkeypatch.setattr(tapes, "WRITE_EVERY_S", 1e6)
    monkeypatch.setattr(tapes, "BEHIND_BYTES", 100)
    with caplog.at_level(logging.ERROR):
        assert written(tmp_path / "tape", *[b"0123456789\n"] * 50) == b""

    assert len(caplog.records) == 1
    assert "the disk is too slow" in caplog.text


def test_check_says_that_nothing_differs(tmp_path: Path) -> None:
    """What was seen, by kind."""
    path = tmp_path / "tape"
    path.write_bytes(b"".join(tape_of(*ORDINARY)))

    result = run(command_line(), ["tape", "check", str(path)])

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"{path}, recorded by tidegate 0.1.0: "
        "6 calls in 0.9 s, 2 Dispatch, 1 Probe, the same commands again\n"
    )


def test_check_shows_the_first_difference(tmp_path: Path) -> None:
    """With exit status 1, so that a script can tell."""
    path = tmp_path / "tape"
    path.write_bytes(b"".join(tape_of(*ORDINARY)).replace(b'"max_concurrency":1', b'"max_concurrency":2'))

    result = run(command_line(), ["tape", "check", str(path)])

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{path}, recorded by tidegate 0.1.0: line 4, at 0.2: Arrived(" in result.stderr
    assert "\n  expected  no command\n  got       Dispatch(" in result.stderr


def test_check_of_what_is_no_tape(tmp_path: Path) -> None:
    """Exit status 2, and where it went wrong; a tape that only breaks off is as good as before."""
    path = tmp_path / "tape"
    whole = b"".join(tape_of(*ORDINARY))
    for content, status, said in [
        (b"", 2, "line 1 is not the header of a tape"),
        (whole + b"{}\n", 2, "line 8 is not a call"),
        (whole[:-5], 0, "the last line is cut off, and left out"),
    ]:
        path.write_bytes(content)
        result = run(command_line(), ["tape", "check", str(path)])
        assert (result.exit_code, said in result.stderr) == (status, True), result.stderr

    missing = run(command_line(), ["tape", "check", str(tmp_path / "none")])
    assert (missing.exit_code, missing.stderr) == (2, f"{tmp_path / 'none'}: No such file or directory\n")


def test_serve_does_not_begin_without_its_tape(tmp_path: Path) -> None:
    """Who asked for a tape must not find out later that there is none."""
    result = run(
        command_line(), ["serve", "http://127.0.0.1:1", "--tape", str(tmp_path / "nowhere" / "tape")]
    )

    assert result.exit_code == 2
    assert "cannot be made: No such file or directory" in result.stderr
