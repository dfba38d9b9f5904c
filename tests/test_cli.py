"""The `tidegate` command as a process: what becomes of it when it is told to stop before it has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import REPOSITORY
from tidegate import __main__, cli

INTERRUPTED_AT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.NUMBER)

sys.meta_path.insert(0, Interrupter())
sys.argv = ["tidegate", *ARGUMENTS]
from tidegate.__main__ import main
main()
"""
SERVE = ("serve", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
SIMULATE = ("simulate", "docs/examples/simulated.yaml", "--for", "1s")
BEFORE: list[tuple[tuple[str, ...], str]] = [
    (SERVE, "typer"),
    (SERVE, "uvloop"),
    (SERVE, "tidegate.policy.governor"),
    (SERVE, "tidegate.gateway.service"),
    (("simulate", "--help"), "tidegate.simulate.commands"),
    (SIMULATE, "numpy"),
    (SIMULATE, "numpy.linalg"),
    (SIMULATE, "tidegate.simulate.session"),
    (("emulate",), "tidegate.emulator.server"),
    (("bench", "http://127.0.0.1:1"), "tidegate.bench.load"),
    (("demo", "--no-live"), "tidegate.demo.commands"),
    (("demo", "noisy-neighbour"), "tidegate.demo.neighbours"),
    (("--help",), "tidegate.gateway.tapes"),
]


def interrupted(
    arguments: tuple[str, ...], module: str, number: signal.Signals, ignored: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run it, signalled at the moment at which it begins to import that module."""
    named = {"MODULE": repr(module), "NUMBER": number.name, "ARGUMENTS": repr(arguments)}
    code = INTERRUPTED_AT
    for name, value in named.items():
        code = code.replace(name, value)
    return subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize("arguments, module", BEFORE, ids=[f"{each[0][0]}: {each[1]}" for each in BEFORE])
def test_ctrl_c_while_it_is_imported(arguments: tuple[str, ...], module: str) -> None:
    """It ends with 130 and without a word, whatever was being imported."""
    ended = interrupted(arguments, module, signal.SIGINT)

    assert (ended.returncode, ended.stdout) == (130, "")


def test_sigterm_while_it_is_imported() -> None:
    """It ends by the signal and without a word."""
    ended = interrupted(SERVE, "tidegate.gateway.service", signal.SIGTERM)

    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """What a script runs in its background is not interrupted by the Ctrl-C that is meant for others."""
    ended = interrupted(("key", "new"), "tidegate.config.commands", signal.SIGINT, ignored=True)

    assert ended.returncode == 0
    assert "sha256" in ended.stdout


def test_ctrl_c_in_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does not catch itself ends it with 130, and imports' own handler is gone by then."""

    def command() -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cli, "asked", lambda: command)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a script's background
    try:
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        left = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert ended.value.code == 130
    assert left is signal.default_int_handler


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk() -> None:
    """Output that finds no room ends it in one line."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tidegate", "--version"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            cwd=REPOSITORY,
        )

    assert (ended.returncode, ended.stderr) == (1, "tidegate: No space left on device\n")
