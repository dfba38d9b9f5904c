"""How does an engine's event stream become the whole answer that the client asked for?

Some engines notice that a client left only while they stream (llama.cpp goes on to the end of a whole
answer). So they are asked for a stream, and the answer is put together here, without I/O: bytes of the
engine in, one JSON object out. It promises

- values travel as raw JSON: what is concatenated is what the engine wrote, numbers keep their digits;
- nothing comes out unless the engine finished: an answer never looks complete when it is not;
- the same answer however the bytes were cut into reads, at a cost linear in their number;
- memory is bounded by the answer, not by the stream: chunks are taken in as they come.

Sources: OpenAI's API reference (the chunk objects and the whole ones), and both forms of answer of
llama.cpp's server and of vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.core.errors import CallerError, UpstreamError
from tidegate.core.request import Usage
from tidegate.gateway.apis import Api, Form
from tidegate.gateway.dialects import is_whole
from tidegate.gateway.dialects.chunks import Chunks
from tidegate.gateway.usage import add_up
from tidegate.net.sse import EventSplitter, data_of

LIMIT_BYTES = 32 * 2**20
"""An answer of more than this is no answer: some 8 million tokens, or 50,000 with 5 logprobs each."""


def can_assemble(api: Api) -> bool:
    """True if a stream of this API can be made into the whole answer."""
    return api.form in (Form.CHAT, Form.TEXT)


class Assembly:
    """One answer that comes as a stream. `choices` is how many must end (`Body.answers`).

    `prompts` says to how many prompts those belong: an engine that counts each choice by itself counts a
    prompt once for each of its choices.
    """

    __slots__ = (
        "_bytes_per_token",
        "_choices",
        "_content_bytes",
        "_dialect",
        "_events",
        "_form",
        "_merged",
        "_over",
        "_prompts",
        "_room",
        "_splitter",
        "_told",
        "_whole",
        "first_token",
        "saw_error",
    )

    def __init__(
        self,
        api: Api,
        *,
        choices: int = 1,
        prompts: int = 1,
        bytes_per_token: float = 4.0,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        if not can_assemble(api):
            raise CallerError(f"answers of {api.path} cannot be assembled")
        self.first_token = False
        """Content, reasoning, a refusal or a tool call has been seen."""
        self.saw_error: str | None = None
        """The engine's own words for why it gave up."""
        self._form = api.form
        self._choices = choices
        self._prompts = prompts
        self._bytes_per_token = bytes_per_token
        self._dialect = Chunks(api.form, choices)
        self._splitter = EventSplitter()
        self._room = _Room(limit_bytes)
        self._merged = _Merged(_CHUNK, self._room)
        self._told: dict[int, _Told] = {}  # by the choice that it was told after
        self._events = 0  # of content
        self._content_bytes = 0
        self._whole = False
        self._over = False  # the terminator or an error: nothing that follows counts

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far, as far as they show; `usage` knows better once it is there."""
        return max(self._events, int(self._content_bytes / self._bytes_per_token))

    @property
    def usage(self) -> Usage | None:
        """The engine's totals. llama.cpp counts each choice by itself; those are added up."""
        each = [told.usage for told in self._told.values()]
        if len(each) < 2:
            return each[0] if each else None
        return add_up(each, self._prompts)

    def feed(self, data: bytes) -> None:
        """One read from the engine. UpstreamError: an endless event or answer, or one that is not JSON."""
        for event in self._splitter.feed(data):
            self._take(event)

    def answer(self) -> bytes | None:
        """The engine's message is over: the whole answer, or None if the engine did not finish it."""
        for event in self._splitter.finish():
            self._take(event)
        rest = self._splitter.tail.rstrip(b"\r\n") + b"\n\n"  # an engine may close before the blank line
        if is_whole(rest):
            self._take(rest)
        self._over = True
        if self.saw_error is not None or not (self._whole or self._dialect.complete):
            return None
        return self._write()

    def _take(self, event: bytes) -> None:
        if self._over:
            return
        plain = self._dialect.plain(event) if self.first_token else None
        if plain is not None:
            self._events += plain[0]
            self._content_bytes += plain[1]
            self._merge(data_of(event))
            return
        look = self._dialect.look(event)
        if look.content_bytes is not None:
            self.first_token = True
            self._events += 1
            self._content_bytes += look.content_bytes
        self.saw_error = look.error
        self._over = look.final or look.error is not None
        if look.final:
            self._whole = self._merged.has_items
        elif look.error is None:
            members = self._merge(data_of(event))
            if look.usage is not None:
                self._note_usage(_Told(look.usage, bytes(members["usage"])))

    def _note_usage(self, told: _Told) -> None:
        """Totals: the latest counts, of each choice that has its own."""
        before = self._told.get(self._merged.latest)
        self._room.take(len(told.raw) - (len(before.raw) if before is not None else 0))
        self._told[self._merged.latest] = told

    def _merge(self, data: bytes) -> Mapping[str, msgspec.Raw]:
        """Take in one chunk; a comment or a `null` (llama.cpp opens batches with one) has nothing."""
        if not data or data.strip() == b"null":
            return {}
        try:
            members = _OBJECT.decode(data)
            self._merged.add(members)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"an event is not a JSON object: {error}") from error
        return members

    def _write(self) -> bytes:
        answer = self._merged.members()
        chat = self._form is Form.CHAT
        answer["object"] = "chat.completion" if chat else "text_completion"
        answer["choices"] = [
            _whole_chat(choice) if chat else _whole_text(choice) for choice in answer["choices"]
        ]
        if self._told:
            # Where each choice has its own, a whole answer of llama.cpp shows that of the first.
            answer["usage"] = msgspec.Raw(self._told[min(self._told)].raw)
        return msgspec.json.encode(answer)


class _Told(NamedTuple):
    usage: Usage
    raw: bytes


def _whole_chat(choice: dict[str, Any]) -> dict[str, Any]:
    index, delta = choice.pop("index"), choice.pop("delta", None)
    message = {"role": _ASSISTANT, "content": _EMPTY} | (delta if isinstance(delta, dict) else {})
    if message["content"] == _NULL:
        # A stream begins with null, before it is known what follows. llama.cpp's whole answers never have it.
        message["content"] = _EMPTY
    return {"index": index, "message": message} | choice


def _whole_text(choice: dict[str, Any]) -> dict[str, Any]:
    return {"text": _EMPTY} | choice


# -- merging --------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """How the members of an object come together from its deltas. Of all others the last value counts."""

    joined: frozenset[str] = frozenset()
    """Strings and lists that are continued."""
    objects: Mapping[str, _Shape] = {}
    """Objects that come in deltas themselves."""
    items: Mapping[str, _Shape] = {}
    """Lists of objects that come in deltas, told apart by their `index`."""
    order: tuple[str, ...] = ()
    """What comes first in a whole answer."""
    without: frozenset[str] = frozenset()
    """What has no place in a whole answer."""


_FUNCTION = _Shape(joined=frozenset({"arguments", "input"}), order=("name",))
_CALL = _Shape(
    objects={"function": _FUNCTION, "custom": _FUNCTION},
    order=("id", "type"),
    without=frozenset({"index"}),
)
_DELTA = _Shape(
    joined=frozenset({"content", "reasoning_content", "reasoning", "refusal"}),
    objects={"function_call": _FUNCTION},
    items={"tool_calls": _CALL},
    order=("role", "content", "refusal"),
)
_LOGPROBS = _Shape(
    joined=frozenset({"content", "refusal", "tokens", "token_logprobs", "top_logprobs", "text_offset"})
)
_CHOICE = _Shape(
    joined=frozenset({"text", "token_ids"}),
    objects={"delta": _DELTA, "logprobs": _LOGPROBS},
    order=("text", "index", "logprobs", "finish_reason"),
)
_CHUNK = _Shape(
    items={"choices": _CHOICE},
    order=("id", "object", "created", "model", "choices", "usage"),
    # OpenAI's padding against listeners, and how much of the prompt llama.cpp has read.
    without=frozenset({"obfuscation", "prompt_progress"}),
)

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_INT = msgspec.json.Decoder(int)
_NULL, _EMPTY, _ASSISTANT = msgspec.Raw(b"null"), msgspec.Raw(b'""'), msgspec.Raw(b'"assistant"')
_NOTHING_NEW = (b"null", b'""', b"[]", b"{}")
_ENTRY_BYTES = 128
"""What a member costs beside its text; so that many small ones are bounded too."""


class _Room:
    """What is left of the memory that one answer may take."""

    __slots__ = ("_left_bytes", "_limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = self._limit_bytes = limit_bytes

    def take(self, size_bytes: int) -> None:
        """UpstreamError once there is no more."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise UpstreamError(f"an answer is longer than {self._limit_bytes} bytes")


class _Merged:
    """One object of a `_Shape`, as far as its deltas have come. Values are raw JSON throughout."""

    __slots__ = ("_items", "_objects", "_room", "_shape", "_values", "latest")

    def __init__(self, shape: _Shape, room: _Room) -> None:
        self.latest = 0
        """Index of the item that was told of last."""
        self._shape = shape
        self._room = room
        self._values: dict[str, bytes | bytearray] = {}  # the second if it may be continued
        self._objects: dict[str, _Merged] = {}
        self._items: dict[str, dict[int, _Merged]] = {}

    @property
    def has_items(self) -> bool:
        """True if any item was told of."""
        return any(self._items.values())

    def add(self, delta: Mapping[str, msgspec.Raw]) -> None:
        """Take in the next delta. DecodeError: not JSON after all."""
        shape, values = self._shape, self._values
        for name, value in delta.items():
            raw = bytes(value)
            if name in shape.joined:
                self._continue(name, raw)
            elif values.get(name) == raw:
                pass  # as nearly all are
            elif name in shape.objects and raw.startswith(b"{"):
                self._object(name).add(_OBJECT.decode(raw))
            elif name in shape.items and raw.startswith(b"["):
                self._add_items(name, _LIST.decode(raw))
            else:
                self._set(name, raw)

    def members(self) -> dict[str, Any]:
        """All of it, in the order of a whole answer as far as that goes, then as it came."""
        found: dict[str, Any] = {name: msgspec.Raw(raw) for name, raw in self._values.items()}
        found |= {name: merged.members() for name, merged in self._objects.items()}
        for name, items in self._items.items():
            found[name] = [item.members() for _, item in sorted(items.items())]
        ordered = {name: found[name] for name in self._shape.order if name in found} | found
        return {name: value for name, value in ordered.items() if name not in self._shape.without}

    def _object(self, name: str) -> _Merged:
        if name not in self._objects:
            self._room.take(_ENTRY_BYTES)
            self._objects[name] = _Merged(self._shape.objects[name], self._room)
        return self._objects[name]

    def _add_items(self, name: str, deltas: list[msgspec.Raw]) -> None:
        items = self._items.setdefault(name, {})
        for place, raw in enumerate(deltas):
            delta = _OBJECT.decode(raw)
            index = _INT.decode(delta["index"]) if "index" in delta else place
            if index not in items:
                self._room.take(_ENTRY_BYTES)
                items[index] = _Merged(self._shape.items[name], self._room)
                items[index]._set("index", b"%d" % index)
            items[index].add(delta)
            self.latest = index

    def _set(self, name: str, raw: bytes) -> None:
        old = self._values.get(name)
        if old is None:
            self._room.take(len(name) + len(raw) + _ENTRY_BYTES)
        elif raw in _NOTHING_NEW:
            return  # and so takes nothing back: usage chunks may come with empty choices
        else:
            self._room.take(len(raw) - len(old))
        self._values[name] = bytearray(raw) if name in self._shape.joined else raw

    def _continue(self, name: str, raw: bytes) -> None:
        """Join two strings, or two lists, without reading either: `"a" "b"` is `"ab"`."""
        if raw.startswith(b"[") and not raw[1:-1].strip():
            raw = b"[]"  # without what white space is in it
        old = self._values.get(name)
        if isinstance(old, bytearray) and raw not in _NOTHING_NEW and old[:1] == raw[:1] in (b'"', b"["):
            self._room.take(len(raw))
            seam = b"," if raw.startswith(b"[") and len(old) > 2 else b""
            old[-1:] = seam + raw[1:]
        else:
            self._set(name, raw)
