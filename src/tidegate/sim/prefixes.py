"""Which computed blocks can be used again, and which are forgotten first?

vLLM's prefix cache: a full block is found by all tokens up to its end. A freed block keeps its content and
goes to the end of the free queue, a sequence's last block first; a block that is found again leaves the
queue; a new block is taken from its front, and what it held is forgotten. Of several blocks with the same
content, the one that was known first is found (source: vLLM 0.19, `v1/core/block_pool.py`).

What is kept here are *extents*: neighbouring blocks of one key with the same users. So an id that stands for
512 tokens costs what one of 16 costs, and can still be cut at every 16. A sequence's own key stands for all
blocks that no id of its `prefix` covers: only itself can find them again, after a preemption.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.core.curve import UNBOUNDED
from tidegate.sim.decoding import Decoding
from tidegate.sim.sequence import Sequence
from tidegate.sim.settings import ReplicaSettings

Key = int | Sequence


class Extent:
    """Blocks `low` to `high`, less one, of those that `key` stands for; None: of no content."""

    __slots__ = ("after", "before", "high", "key", "low", "rest", "users")

    def __init__(self, key: Key | None, low: int, high: int, users: int) -> None:
        self.key = key
        self.low = low
        self.high = high
        self.users = users
        """Sequences that hold it; it is in the free queue while there is none."""
        self.rest: Extent | None = None
        """What was cut off its end. Whoever held both holds on to this one, and finds the other here."""
        self.before = self.after = self  # in the free queue


class Found:
    """What is there of a sequence: nothing, to begin with."""

    __slots__ = ("blocks", "growing", "parts", "unused")

    def __init__(self) -> None:
        self.parts: list[tuple[Extent, int, int]] = []  # extent, where in it the part begins, blocks
        self.blocks: int = 0
        self.unused: int = 0  # blocks of these that are in the free queue
        self.growing: bool = False  # another sequence is about to compute what comes next


class PrefixCache:
    """The contents of the KV cache, and the free queue."""

    __slots__ = ("_block_tokens", "_decoding", "_growers", "_growing", "_known", "_owed", "_queue")

    def __init__(self, settings: ReplicaSettings, decoding: Decoding) -> None:
        self._block_tokens = settings.block_tokens
        self._decoding = decoding
        self._known: dict[Key, list[Extent]] = {}  # in the order in which they became known
        self._queue = Extent(None, 0, 0, 0)  # both ends of the free queue
        self._growing: dict[int, int] = {}  # ids of outputs under way: sequences that compute them
        self._growers: dict[Sequence, int] = {}  # from which of its ids on
        self._owed = 0  # blocks taken, and not yet from the queue
        self._append(Extent(None, 0, settings.blocks, 0))

    # -- the free queue ---------------------------------------------------------------------------------

    def take(self, blocks: int) -> None:
        """Take new blocks; there must be so many free ones."""
        self._owed += blocks

    def _append(self, extent: Extent) -> None:
        end = self._queue
        extent.before, extent.after = end.before, end
        end.before.after = end.before = extent

    @staticmethod
    def _leave(extent: Extent) -> None:
        extent.before.after, extent.after.before = extent.after, extent.before

    def _forget(self) -> None:
        """Take what is owed: from the front, of each extent the last block first."""
        owed, extent = self._owed, self._queue.after
        while owed:
            owed -= extent.high - extent.low
            if owed < 0:
                extent.high = extent.low - owed
                break
            self._leave(extent)
            if extent.key is not None:
                same = self._known[extent.key]
                same.remove(extent)
                if not same:
                    del self._known[extent.key]
            extent = extent.after
        self._owed = 0

    # -- finding ----------------------------------------------------------------------------------------

    def find(self, sequence: Sequence, known_tokens: int) -> Found:
        """The longest known beginning of its tokens, less the last one: its logits are needed."""
        self._forget()
        if self._growing and any(key in self._growing for key in sequence.prefix):
            self._catch_up()
        usable = (known_tokens - 1) // self._block_tokens
        found = Found()
        for key, low, high in self._keys(sequence, 0, usable):
            if not self._find(found, key, low, high):
                found.growing = key in self._growing
                break
        return found

    def _find(self, found: Found, key: Key, low: int, high: int) -> bool:
        """True if all of these blocks are known."""
        extents = self._known.get(key, ())
        while low < high:
            for extent in extents:
                if extent.low <= low < extent.high:
                    break
            else:
                return False
            blocks = min(extent.high, high) - low
            found.parts.append((extent, low, blocks))
            found.blocks += blocks
            if not extent.users:
                found.unused += blocks
            low += blocks
        return True

    def use(self, sequence: Sequence, found: Found) -> None:
        """It holds what was found."""
        for extent, low, blocks in found.parts:
            if low > extent.low:
                extent = self._cut(extent, low)
            if low + blocks < extent.high:
                self._cut(extent, low + blocks)
            if not extent.users:
                self._leave(extent)
            extent.users += 1
            sequence.extents.append((extent, blocks))
        sequence.kept = found.blocks

    def _cut(self, extent: Extent, at: int) -> Extent:
        """Cut off what begins with block `at`."""
        rest = Extent(extent.key, at, extent.high, extent.users)
        rest.rest, extent.rest, extent.high = extent.rest, rest, at
        same = self._known[extent.key] if extent.key is not None else []
        same.insert(same.index(extent) + 1, rest)
        if not extent.users:  # the last block is the first to go
            rest.before, rest.after = extent.before, extent
            extent.before.after = extent.before = rest
        return rest

    def _keys(self, sequence: Sequence, low: int, high: int) -> Iterator[tuple[Key, int, int]]:
        """The keys of its blocks `low` to `high`, less one, and which blocks of each."""
        each = sequence.prefix_block_tokens // self._block_tokens
        covered = len(sequence.prefix) * each
        while low < min(high, covered):
            at = low // each
            first = at * each
            end = min(high - first, each)
            yield sequence.prefix[at], low - first, end
            low = first + end
        if low < high:
            yield sequence, low, high

    # -- keeping ----------------------------------------------------------------------------------------

    def keep(self, sequence: Sequence, full_blocks: int) -> None:
        """So many of its blocks are full: those that others can find become known."""
        full_blocks = min(full_blocks, self._covered(sequence))
        if full_blocks > sequence.kept:
            if self._growing and any(key in self._growing for key in sequence.prefix):
                self._catch_up(sequence.rank)
            self._keep(sequence, full_blocks)

    def _covered(self, sequence: Sequence) -> int:
        return len(sequence.prefix) * sequence.prefix_block_tokens // self._block_tokens

    def _keep(self, sequence: Sequence, full_blocks: int) -> None:
        extents = sequence.extents
        for key, low, high in self._keys(sequence, sequence.kept, full_blocks):
            same = self._known.setdefault(key, [])
            last = extents[-1][0] if extents else None
            if last is not None and last.users == 1 and last.high == low and same and same[-1] is last:
                last.high = high
                extents[-1] = (last, extents[-1][1] + high - low)
            else:
                extent = Extent(key, low, high, 1)
                same.append(extent)
                extents.append((extent, high - low))
        sequence.kept = max(sequence.kept, full_blocks)

    def give_back(self, sequence: Sequence, blocks: int, full_blocks: int, *, gone: bool) -> int:
        """It holds its blocks no more, of which so many are full: how many are free now?

        If it is not `gone`, it may find them again.
        """
        self._unwatch(sequence, full_blocks)
        if not gone and full_blocks > sequence.kept:
            self._keep(sequence, full_blocks)
        free = blocks - sequence.kept
        self._append_empty(free)
        for extent, held in reversed(sequence.extents):
            for part in (extent,) if extent.high - extent.low == held else reversed(_parts(extent, held)):
                part.users -= 1
                if not part.users:
                    self._append(part)
                    free += part.high - part.low
        sequence.extents.clear()
        sequence.kept = 0
        if gone:
            for extent in self._known.pop(sequence, ()):
                extent.key = None
        return free

    def _append_empty(self, blocks: int) -> None:
        """Blocks without content go to the end of the queue."""
        last = self._queue.before
        if last.key is None and last is not self._queue:
            last.high += blocks
        elif blocks:
            self._append(Extent(None, 0, blocks, 0))

    # -- outputs whose ids are known ----------------------------------------------------------------------

    def watch(self, sequence: Sequence) -> None:
        """It decodes from now on. The blocks that it fills are looked at when somebody asks for them."""
        first = sequence.kept * self._block_tokens // sequence.prefix_block_tokens
        if first < len(sequence.prefix):
            self._growers[sequence] = first
            for key in sequence.prefix[first:]:
                self._growing[key] = self._growing.get(key, 0) + 1

    def _unwatch(self, sequence: Sequence, full_blocks: int) -> None:
        first = self._growers.get(sequence)
        if first is not None:
            ids = sequence.prefix[first:]
            if any(self._growing[key] > 1 for key in ids):
                self._catch_up()
            del self._growers[sequence]
            for key in ids:
                self._growing[key] -= 1
                if not self._growing[key]:
                    del self._growing[key]
        self.keep(sequence, full_blocks)

    def _catch_up(self, rank: int = UNBOUNDED) -> None:
        """What the outputs under way have filled becomes known, in the order in which it was filled.

        Of the step begun last, only what sequences up to `rank` fill: they come first in it.
        """
        filled = []
        for sequence in self._growers:
            full = min(self._decoding.verified_of(sequence) // self._block_tokens, self._covered(sequence))
            for blocks in range(sequence.kept + 1, full + 1):
                step = self._decoding.step_of(sequence, blocks * self._block_tokens)
                if step == self._decoding.step and sequence.rank > rank:
                    break
                filled.append((step, sequence.rank, blocks, sequence))
        for _, _, blocks, sequence in sorted(filled, key=lambda one: one[:3]):
            self._keep(sequence, blocks)

    def check(self, free_blocks: int) -> None:
        """Assert that the queue holds the free blocks, and that what is known is there once."""
        queued, extent = -self._owed, self._queue.after
        while extent is not self._queue:
            assert not extent.users
            assert extent.low < extent.high or extent.key is None
            queued += extent.high - extent.low
            extent = extent.after
        assert queued == free_blocks
        for key, extents in self._known.items():
            assert extents
            assert all(extent.key == key and extent.low < extent.high for extent in extents)


def _parts(extent: Extent, blocks: int) -> list[Extent]:
    """An extent that had so many blocks, and what was cut off it since."""
    parts = [extent]
    blocks -= extent.high - extent.low
    while blocks and extent.rest is not None:
        extent = extent.rest
        parts.append(extent)
        blocks -= extent.high - extent.low
    return parts
