"""How is a simulated engine written, with its step times and how it was started?"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.core.curve import Curve, Linear
from tidegate.plan.ask import Load, Replica
from tidegate.planning.emit.guessing import guessing_of
from tidegate.planning.emit.yaml_lines import Lines

STARTED = ("max_num_seqs", "max_batched_tokens", "kv_tokens", "context_tokens", "block_tokens")


def engine_started(replica: Replica, load: Load) -> dict[str, object]:
    """Settings of its engine, by name."""
    started: dict[str, object] = {name: getattr(replica.engine, name) for name in STARTED}
    started |= guessing_of(replica.engine)
    started["prefix_cache"] = load.prefix_hit_ratio > 0
    return started


def curve_lines(lines: Lines, depth: int, curve: Curve, name: str) -> None:
    """Tables a part a line: they are long."""
    if isinstance(curve, Linear):
        lines.key(depth, "curve", msgspec.structs.asdict(curve), f"Seconds of a step of {name}.")
        return
    lines.key(depth, "table", reason=f"Seconds of a step of {name}.")
    for key, part in _parts(curve):
        lines.key(depth + 1, key, part)


def _parts(curve: msgspec.Struct) -> Iterator[tuple[str, object]]:
    for name in curve.__struct_fields__:
        if (part := getattr(curve, name)) is not None:
            yield name, msgspec.to_builtins(part)
