"""Which files and checks does the command line ask for beside the answer, and for which tenants?"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.text import printable
from tidegate.planning.numbers import number_of, rate_of
from tidegate.planning.options import Options

MODEL = "model"
"""The pool where the plan names no model."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made of an answer."""

    weights: dict[str, float] = {}
    """Of tenants, by name."""
    emit: Path | None = None
    force: bool = False
    verify: bool = False
    curve: bool = False
    """At the terminal, or as JSON."""
    html: Path | None = None
    offload_bytes: float | None = None
    """Of a replica's host, for sessions between turns."""
    offload_link_bytes_per_s: float | None = None
    """None: as the catalogue has it."""
    model: str = MODEL

    @property
    def any(self) -> bool:
        """Whether any configuration is."""
        return bool(self.weights) or self.emit is not None or self.verify


def wanted_of(options: Options) -> Wanted:
    """What the options ask for. Raises ConfigurationError before anything is computed in vain."""
    problems = [
        f"{option}: is empty; name a file"
        for option, text in (("--emit", options.emit), ("--html", options.html))
        if text == ""
    ]
    if problems:
        raise ConfigurationError(problems)
    emit = None if options.emit is None else Path(options.emit)
    if emit is not None:
        from tidegate.planning.emit.emitting import check_free

        check_free(emit, force=options.force)
    html = None if options.html is None else Path(options.html)
    if html is not None:
        _check_report(html, emit, force=options.force)
    memory, link = options.offload, options.offload_link
    named = options.model is not None and not Path(options.model).is_file()
    return Wanted(
        weights={} if options.tenants is None else _weights(options.tenants),
        emit=emit,
        force=options.force,
        verify=options.verify,
        curve=options.curve,
        html=html,
        offload_bytes=None if memory is None else 2**30 * number_of("--offload", memory, "GiB"),
        offload_link_bytes_per_s=None if link is None else rate_of("--offload-link", link),
        model=options.model if named and options.model else MODEL,
    )


def _check_report(html: Path, emit: Path | None, *, force: bool) -> None:
    from tidegate.planning.emit.emitting import traffic_path
    from tidegate.planning.files import taken

    problems = [*taken("--html", html, force=force)]
    if emit is not None and html.resolve() in (emit.resolve(), traffic_path(emit).resolve()):
        problems = [f"--html {html}: is what --emit writes; name another file"]
    if problems:
        raise ConfigurationError(problems)


def _check_tenant(name: str, weight: float) -> None:
    """As a configuration would, but by the option."""
    from tidegate.config.checks import name_told
    from tidegate.config.ranges import WEIGHT

    if (problem := name_told(name)) is not None:
        raise ConfigurationError([f"--tenants {printable(name)}: {problem}"])
    if not WEIGHT.holds(weight):
        problem = f"--tenants {name}: {weight:,.0f} is too heavy"
        raise ConfigurationError([f"{problem}; give weights of {WEIGHT.high:,.0f} at most"])


def _weights(text: str) -> dict[str, float]:
    """Of `acme=2,lab=1`, or `acme,lab`."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = (each.strip() for each in part.partition("="))
        if not name or (equals and not weight):
            raise ConfigurationError([f"--tenants {text}: write NAME=WEIGHT, as in --tenants acme=2,lab=1"])
        if name in weights:
            raise ConfigurationError([f"--tenants {text}: {name} stands twice; name each tenant once"])
        weights[name] = number_of(f"--tenants {name}", weight, "a weight") if equals else 1.0
        _check_tenant(name, weights[name])
    return weights
