"""Problems on the command line: all of them, on stderr, and an exit status of their own."""

from pathlib import Path

import pytest
import typer

from tidegate.config.telling import WRONG, check_writable, problems_told
from tidegate.core.errors import ConfigurationError


def test_every_problem_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is on stdout, which may be a file for programs."""
    with pytest.raises(typer.Exit) as ended, problems_told():
        raise ConfigurationError(["a: is no number", "b: is unknown"])

    assert ended.value.exit_code == WRONG == 2
    assert capsys.readouterr() == ("", "a: is no number\nb: is unknown\n")


@pytest.mark.parametrize("other", [typer.Exit(1), OSError("the disk is full")])
def test_what_is_no_mistake_of_the_user_passes(other: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """An exit status, or a fault of ours, is not made another."""
    with pytest.raises(type(other)) as raised, problems_told():
        raise other

    assert raised.value is other
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """It is told with its option; what can be written keeps what is in it."""
    kept = tmp_path / "kept"
    kept.write_text("before")
    check_writable("--out", kept)
    assert kept.read_text() == "before"

    with pytest.raises(ConfigurationError) as refused:
        check_writable("--out", tmp_path)
    assert refused.value.problems == [f"--out {tmp_path}: Is a directory"]
