"""How many tokens has a stream shown so far, when most of its events are never parsed?

Chunks are not tokens: an engine may put several into one. So the count is the number of content
events, or the bytes of content over the pool's bytes per token if that is more. The bytes of content
in an event that is not parsed are its length less the overhead learned from parsed ones of its kind.
"""

from __future__ import annotations

_LEARNED = 2  # parsed events of a kind; the first of all may also carry a role


class TokenCount:
    """Output tokens of one stream. Takes each content event once, parsed or plain."""

    __slots__ = (
        "_content_bytes",
        "_events",
        "_overhead_bytes",
        "_overheads",
        "_sized",
        "bytes_per_token",
        "steady",
    )

    def __init__(self, bytes_per_token: float) -> None:
        self.bytes_per_token = bytes_per_token
        self.steady = False
        """Events of the kind last parsed need no parsing any more."""
        self._events = 0
        self._content_bytes = 0
        self._overhead_bytes = 0
        self._overheads: dict[
            bytes, tuple[int, int]
        ] = {}  # per kind: times parsed, least bytes beside content
        self._sized = True

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return max(self._events, int(self._content_bytes / self.bytes_per_token))

    def add_parsed(self, kind: bytes, event_bytes: int, content_bytes: int, sized: bool) -> None:
        """A content event. Not `sized`: it grows with more than its content, so that bytes tell nothing."""
        times, least_bytes = self._overheads.get(kind, (0, event_bytes))
        self._overhead_bytes = min(least_bytes, event_bytes - content_bytes)
        self._overheads[kind] = (times + 1, self._overhead_bytes)
        self.steady = times + 1 >= _LEARNED
        self._sized = self._sized and sized
        self._events += 1
        if self._sized:
            self._content_bytes += content_bytes

    def add_plain(self, events: int, total_bytes: int) -> None:
        """Events of the kind last parsed, unparsed, of `total_bytes` together."""
        self._events += events
        if self._sized:
            self._content_bytes += max(total_bytes - events * self._overhead_bytes, 0)
