"""Which replicas may still hold the beginning of this prompt in their prefix cache?

A guess from what was sent where: of each replica its latest blocks, as many as its cache may hold. A block is
named by a hash of itself and of all before it, so that two prompts share a block only where they share all
before it too. A look costs the blocks that match, however many replicas there are.

Sources: Mooncake's conductor (Qin et al., FAST 2025) for routing by cached blocks, SGLang's router for
guessing them from what was sent, llm-d for narrowing by affinity and deciding by load.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class PrefixIndex:
    """Blocks by replica, and replicas by block. A replica has a key, which is a number of its own.

    Sets of replicas are bits: each replica known here has a place, which another takes when it has left.
    """

    _holders: dict[int, int] = field(default_factory=dict)  # by block: the bits of whom it was sent to
    _sent: list[OrderedDict[int, None]] = field(default_factory=list)  # by place: the oldest block first
    _places: dict[int, int] = field(default_factory=dict)  # by key
    _keys: list[int] = field(default_factory=list)  # by place
    _free: list[int] = field(default_factory=list)

    def match(self, prefix: Sequence[int]) -> list[int]:
        """For each block from the first on, who was sent all blocks so far; ends where nobody was."""
        found: list[int] = []
        left = -1
        for block in prefix:
            left &= self._holders.get(block, 0)
            if not left:
                break
            found.append(left)
        return found

    def holds(self, bits: int, key: int) -> bool:
        """Whether the replica of that key is one of these."""
        place = self._places.get(key)
        return place is not None and bits >> place & 1 == 1

    def keys(self, bits: int) -> Iterator[int]:
        """The keys of these replicas."""
        while bits:
            lowest = bits & -bits
            yield self._keys[lowest.bit_length() - 1]
            bits ^= lowest

    def sent(self, key: int, prefix: Sequence[int], most: int) -> None:
        """A prompt goes to that replica, of whose blocks the `most` latest are kept."""
        place = self._places.get(key)
        if place is None:
            place = self._take_place(key)
        sent, bit, holders = self._sent[place], 1 << place, self._holders
        for block in reversed(prefix):  # as an engine frees them: a prompt's last blocks are the oldest
            if block in sent:
                sent.move_to_end(block)
            else:
                sent[block] = None
                holders[block] = holders.get(block, 0) | bit
        while len(sent) > most:
            self._drop(sent.popitem(last=False)[0], bit)

    def forget(self, key: int) -> None:
        """That replica has left, or has lost its cache."""
        place = self._places.pop(key, None)
        if place is None:
            return
        for block in self._sent[place]:
            self._drop(block, 1 << place)
        self._sent[place] = OrderedDict()
        self._free.append(place)

    def _take_place(self, key: int) -> int:
        if self._free:
            place = self._free.pop()
            self._keys[place] = key
        else:
            place = len(self._keys)
            self._keys.append(key)
            self._sent.append(OrderedDict())
        self._places[key] = place
        return place

    def _drop(self, block: int, bit: int) -> None:
        rest = self._holders[block] & ~bit
        if rest:
            self._holders[block] = rest
        else:
            del self._holders[block]

    def __len__(self) -> int:
        """Blocks kept, of all replicas."""
        return sum(map(len, self._sent))

    def check(self) -> None:
        """Assert that both directions say the same."""
        holders: dict[int, int] = {}
        for place, sent in enumerate(self._sent):
            for block in sent:
                holders[block] = holders.get(block, 0) | 1 << place
        assert holders == self._holders
        assert sorted([*self._places.values(), *self._free]) == list(range(len(self._keys)))
        assert all(self._keys[place] == key for key, place in self._places.items())
        assert not any(self._sent[place] for place in self._free)
