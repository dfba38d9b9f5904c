"""How is an engine calibrated from the command line?

What needs numpy is imported when the options are known to be right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import gmtime, strftime
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.markup import escape

from tidegate.config.telling import check_writable, problems_told
from tidegate.core.errors import ConfigurationError
from tidegate.core.text import as_json
from tidegate.core.units import seconds_of

SOURCE, ENGINE, OUTPUT = "What is measured", "What the engine does not tell", "Output"
LEAST_FOR_S = 1.0
SUFFIXES = (".yaml", ".yml")


def calibrate(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Measure this engine: nothing else should use it.",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Records of one engine, from `tidegate bench --out`.", rich_help_panel=SOURCE
        ),
    ] = None,
    scrapes: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Scrapes of one engine's /metrics: a folder, or a JSONL file.",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="With --url: add no load, only scrape it.", rich_help_panel=SOURCE),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Model to ask; else the first that the engine lists.", rich_help_panel=SOURCE),
    ] = None,
    for_: Annotated[
        str, typer.Option("--for", help="How long to measure, at most.", rich_help_panel=SOURCE)
    ] = "2m",
    api_key: Annotated[
        str,
        typer.Option(
            envvar="TIDEGATE_API_KEY",
            show_envvar=False,
            show_default=False,
            help="API key; else $TIDEGATE_API_KEY.",
            rich_help_panel=SOURCE,
        ),
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(help="Of the prompts; else another each time.", min=0, rich_help_panel=SOURCE),
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="Sequences in a batch.", min=1, rich_help_panel=ENGINE)
    ] = None,
    max_batched_tokens: Annotated[
        int | None, typer.Option(help="Token budget of a step.", min=1, rich_help_panel=ENGINE)
    ] = None,
    kv_tokens: Annotated[int | None, typer.Option(help="KV cache.", min=1, rich_help_panel=ENGINE)] = None,
    context_tokens: Annotated[
        int | None, typer.Option(help="Prompt and output of one sequence.", min=1, rich_help_panel=ENGINE)
    ] = None,
    out: Annotated[Path, typer.Option(help="Write the profile here.", rich_help_panel=OUTPUT)] = Path(
        "profile.yaml"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """What is this engine like? Fit its step times, and write a profile for emulate, simulate and plan."""
    with problems_told(json=json):
        _check(url, records, scrapes, watch)
        for_s = seconds_of("--for", for_)
        if for_s < LEAST_FOR_S:
            raise ConfigurationError(
                [f"--for {for_}: is too short to measure anything; give a second or more"]
            )
        with _written_later(out):
            from tidegate.calibrate.report import report_of
            from tidegate.calibrate.sources import Asked, of_engine, of_records, of_scrapes
            from tidegate.calibrate.told import Told
            from tidegate.config.profiles import as_yaml

            given = Told(
                max_num_seqs=max_num_seqs,
                max_batched_tokens=max_batched_tokens,
                kv_tokens=kv_tokens,
                context_tokens=context_tokens,
            )
            if records is not None:
                found = of_records(records, given)
            elif scrapes is not None:
                found = of_scrapes(scrapes, given)
            else:
                asked = Asked(
                    url=url or "", model=model, api_key=api_key, for_s=for_s, seed=seed, watch=watch
                )
                with _shown() as show:
                    found = uvloop.run(of_engine(asked, given, show))
            today = strftime("%Y-%m-%d", gmtime())
            report = report_of(found, file=str(out), date=today)
            out.write_text(as_yaml(report.profile))
    if json:
        typer.echo(as_json(report))
    else:
        from tidegate.calibrate.report import as_text

        Console().print(as_text(report))


def _check(url: str | None, records: Path | None, scrapes: Path | None, watch: bool) -> None:
    """Raise ConfigurationError unless there is one source."""
    named = {"--url": url, "--records": records, "--scrapes": scrapes}
    given = [option for option, value in named.items() if value is not None]
    if len(given) != 1:
        told = f"not {' and '.join(given)}" if given else "none was given"
        raise ConfigurationError([f"calibrate one of --url, --records and --scrapes; {told}"])
    if watch and url is None:
        raise ConfigurationError(["--watch scrapes the engine of --url; files need no watching"])


@contextmanager
def _written_later(out: Path) -> Iterator[None]:
    """Try the file before a run, and leave none behind that nothing was written to."""
    if out.suffix not in SUFFIXES:
        raise ConfigurationError([f"--out {out}: is not the name of a YAML file; let it end in .yaml"])
    was_there = out.exists()
    check_writable("--out", out)
    try:
        yield
    except BaseException:
        if not was_there:
            out.unlink(missing_ok=True)
        raise


@contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """Where people watch, a line says what is measured now."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda what: status.update(f"measuring {escape(what)}")
