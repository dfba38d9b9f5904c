"""What do `config check`, `config schema` and `key new` print?"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.config import digest_of, parse, schema
from tidegate.config.commands import config_app, key_app
from tidegate.config.warnings import warnings_of

FULL = Path(__file__).parents[2] / "docs" / "examples" / "full.yaml"
FLEET = "pools: {m: {replicas: [{url: http://e:1}]}}\n"
KEY = f"keys: {{k: {{sha256: {'a' * 64}}}}}"
cli = CliRunner(env={"COLUMNS": "200"})


def test_check_says_what_a_configuration_means() -> None:
    """Pools, classes, tenants and what is unlimited, on one screen."""
    result = cli.invoke(config_app, ["check", str(FULL)])

    assert result.exit_code == 0, result.output
    for words in [
        "llama-3.1-8b",
        "interactive (protected)",
        "30%",
        "acme",
        "unlimited",
        "1,000,000 tokens/min",
    ]:
        assert words in result.stdout
    assert result.stdout.splitlines()[-1] == f"OK {FULL}"
    assert "warning" not in result.stdout


def test_check_says_all_that_is_wrong(tmp_path: Path) -> None:
    """Problems go to standard error, one line each, and the status is that of a bad command line."""
    path = tmp_path / "f.yaml"
    path.write_text("pools: {}\nhtp: 1\n")

    result = cli.invoke(config_app, ["check", str(path)])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert [line.removeprefix(str(path)).split(": ")[0] for line in result.stderr.splitlines()] == [
        ":1:1",
        ":2:1",
    ]


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """Brackets in a name or path are text, not markup of the terminal."""
    path = tmp_path / "[red]f.yaml"
    path.write_text("pools: {'[red]m': {replicas: [{url: 'http://[::1]:1'}]}}")

    result = cli.invoke(config_app, ["check", str(path)])

    assert result.exit_code == 0
    assert "[red]m" in result.stdout
    assert "http://[::1]:1" in result.stdout
    assert "[red]f.yaml" in result.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FLEET, "there are no limits"),
        (FLEET + "limits: {burst_s: 9}", "limits: limits nothing"),
        (FLEET + f"listen: 0.0.0.0:1\ntenants: {{t: {{{KEY}}}}}", "keys cross the network unencrypted"),
        (
            FLEET + f"admin: {{listen: 0.0.0.0:1, token_sha256: {'b' * 64}}}",
            "admin token crosses the network",
        ),
        (FLEET + "tenants: {t: {}}", "tenants.t: has no keys"),
        (FLEET + f"classes: {{a: {{}}, b: {{}}}}\ntenants: {{t: {{{KEY}}}}}", "names no class and gets b"),
        (FLEET + f"tenants: {{t: {{{KEY[:-2]}, expires: 2001-09-08}}}}}}}}", "expired after 2001-09-08"),
        ("pools: {m: {extras: [/sleep], replicas: [{url: http://e}]}}", "opens /sleep to every client"),
        ("pools: {m: {extras: [/infill], replicas: [{url: http://e}]}}", "whose tokens no limit counts"),
        (
            "pools: {m: {replicas: [{url: http://e, credential_env: K}]}}",
            "its credential crosses the network",
        ),
        ("pools: {m: &m {replicas: [{url: http://e}]}, n: *m}", "http://e is in m as well"),
    ],
)
def test_warnings(text: str, words: str) -> None:
    """What is allowed but probably not meant is said; the time is given."""
    config = parse(text, "f", environ={"K": "secret"})
    assert any(words in f"{'.'.join(map(str, each.where))}: {each.text}" for each in warnings_of(config, 1e9))


@pytest.mark.parametrize(
    "text",
    [
        FLEET + f"limits: {{max_in_flight: 9}}\ntenants: {{t: {{{KEY[:-2]}, expires: 2001-09-09}}}}}}}}",
        "pools: {m: {extras: [/tokenize], replicas: [{url: http://127.0.0.1:1, credential_env: K}]}}\n"
        "limits: {max_in_flight: 9}",
        "pools: {m: {replicas: [{url: https://e, credential_env: K}]}}\nlimits: {max_in_flight: 9}",
    ],
)
def test_no_warning_where_all_is_well(text: str) -> None:
    """A key on its last day, a credential over TLS or loopback, a harmless extra."""
    assert warnings_of(parse(text, "f", environ={"K": "secret"}), 1e9) == []


def test_schema_prints_the_schema() -> None:
    """Standard output is the schema and nothing else."""
    result = cli.invoke(config_app, ["schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == schema()


def test_a_new_key_opens_what_its_lines_configure() -> None:
    """The printed lines, pasted into a file, make the printed key that tenant's."""
    result = cli.invoke(key_app, ["--tenant", "acme", "--name", "no: #1"])

    assert result.exit_code == 0, result.output
    plain, _, lines = result.stdout.partition("\n")
    with pytest.raises(Exception, match="is not a name"):
        parse(FLEET + lines, "f")  # the name is the user's to choose, and to mend

    result = cli.invoke(key_app, ["--tenant", "acme", "--name", "ci"])
    plain, _, lines = result.stdout.partition("\n")
    caller = parse(FLEET + lines, "f").callers()[digest_of(plain.encode())]
    assert (caller.tenant, caller.key) == ("acme", "ci")
