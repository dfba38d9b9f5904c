"""Which form has a trace? Its first line tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain

import msgspec

from tidegate.core.errors import ConfigurationError
from tidegate.core.text import printable
from tidegate.workload.traces import agentic, azure, bailian, blocks, burstgpt, mooncake, pairs, servegen
from tidegate.workload.traces.lines import Lines, header_of, text_of
from tidegate.workload.traces.rows import TraceRow


class Format(StrEnum):
    """A form that can be read."""

    AZURE = "azure"
    BURSTGPT = "burstgpt"
    MOONCAKE = "mooncake"
    BAILIAN = "qwen-bailian"
    BLOCKS = "blocks"
    AGENTIC = "agentic-sessions"
    SERVEGEN = "servegen-rates"
    PAIRS = "length-pairs"


# From the most particular to the most general: the first whose names are all there is it.
_COLUMNS: Mapping[Format, Sequence[str]] = {
    Format.AZURE: azure.COLUMNS,
    Format.BURSTGPT: burstgpt.COLUMNS,
    Format.BLOCKS: blocks.COLUMNS,
    Format.SERVEGEN: servegen.RATE_COLUMNS,
    Format.PAIRS: pairs.COLUMNS,
}
_KEYS: Mapping[Format, Sequence[str]] = {
    Format.BAILIAN: bailian.KEYS,
    Format.MOONCAKE: mooncake.KEYS,
    Format.AGENTIC: agentic.KEYS,
}
_READERS: Mapping[Format, Callable[[Lines, str], Iterator[TraceRow]]] = {
    Format.AZURE: azure.read_azure,
    Format.BURSTGPT: burstgpt.read_burstgpt,
    Format.MOONCAKE: mooncake.read_mooncake,
    Format.BAILIAN: bailian.read_bailian,
    Format.BLOCKS: blocks.read_blocks,
    Format.PAIRS: pairs.read_pairs,
}
LOGS = tuple(_READERS)
"""Forms with a row for each request; all but the pairs tell when it came."""

_SHOWN = 80


def detect(lines: Lines, name: str = "trace") -> tuple[Format, Lines]:
    """The form of a trace, and all of its lines, the first included.

    Raises ConfigurationError, which names the nearest form and what it lacks, for a first line of no known
    one.
    """
    unread = iter(lines)
    seen: list[str | bytes] = []
    for line in unread:
        seen.append(line)
        try:
            text = text_of(line)
        except ValueError as error:
            raise ConfigurationError([f"{name}, line {len(seen)}: {error}"]) from None
        if text:
            return _format_of(text, f"{name}, line {len(seen)}"), chain(seen, unread)
    raise ConfigurationError([f"{name}: is empty; give a trace of one of the forms {', '.join(Format)}"])


def read_rows(lines: Lines, name: str = "trace", form: Format | None = None) -> Iterator[TraceRow]:
    """Rows of a trace in any form that has one for each request; `form` None is found out.

    Raises ConfigurationError, once it is reached, for what is no such trace or not sound.
    """
    if form is None:
        form, lines = detect(lines, name)
    reader = _READERS.get(form)
    if reader is None:
        raise ConfigurationError([f"{name}: {form} is no log of requests; give one of {', '.join(LOGS)}"])
    return reader(lines, name)


def _format_of(first: str, where: str) -> Format:
    known, names = (_KEYS, _keys(first, where)) if first.startswith("{") else (_COLUMNS, header_of(first))
    for form, needed in known.items():
        if all(each in names for each in needed):
            return form
    nearest = min(known, key=lambda form: sum(each not in names for each in known[form]))
    missing = [each for each in known[nearest] if each not in names]
    if len(missing) < len(known[nearest]):
        problem = f"is near to the form {nearest}, which has {', '.join(missing)} too"
    else:
        problem = f"begins no trace of a known form ({', '.join(Format)})"
    raise ConfigurationError([f"{where}: {printable(first[:_SHOWN])!r} {problem}"])


def _keys(first: str, where: str) -> list[str]:
    try:
        return list(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))
    except msgspec.MsgspecError as error:
        raise ConfigurationError([f"{where}: {error}"]) from None
