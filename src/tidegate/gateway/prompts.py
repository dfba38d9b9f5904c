"""How large is a prompt, without tokenising it?

Exact tokenisation would stall the event loop (77 ms per 100 KB), so text is measured in bytes of its
JSON, which costs nothing: punctuation, `role` and quotes stand in for what a chat template adds to
each message. Token ids are counted exactly. Image, audio and video parts cost a configured number
of tokens each, and their payload does not count as text. Whatever is not certainly media is text:
an odd shape makes a request dearer, never cheaper. What it costs to measure is bounded too: scans are
linear and few, and nothing of more than `MOST_VALUES` values is looked into one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.gateway.apis import RERANK, Api


class MediaEstimate(NamedTuple):
    """Prompt tokens that one part of a kind is taken to cost, until the engine's usage corrects it."""

    image_tokens: int = 1000
    audio_tokens: int = 500
    video_tokens: int = 4000


class Prompt:
    """The size of a prompt, or of a batch of them taken together."""

    def __init__(self, text_bytes: int, tokens_known: int, prompts: int) -> None:
        self.text_bytes: Final = text_bytes
        self.tokens_known: Final = tokens_known
        """Token ids (exact) and media (estimated)."""
        self.prompts: Final = prompts
        """How many are in the batch; 1 where there is no batch. Not fewer where that cannot be told."""


MOST_VALUES = 2**16
"""As many values are decoded into objects: 20 to 50 ms. 8,192 documents of seven members each have fewer, and
so has a conversation of 10,000 messages."""

_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
    "input_video": "video",
}
"""Kind of medium by `type` of a content part, or by member where an engine lets `type` be left out."""

_PAYLOADS = ("image_url", "image", "image_embeds", "input_audio", "audio_url", "video_url", "source", "data")
"""Members of a media part that hold its address or base64 data."""

_MARKERS = (b'"input_', b'"audio_url', b'"video_url')
"""One, or `"image`, is in every text that holds media under its plain names; under escaped names media count
as text."""

_UNICODE_ESCAPE = re.compile(rb"\\u[0-9a-fA-F]{4}")
_SAMPLE_BYTES = 2**14


def measure(api: Api, fields: dict[str, msgspec.Raw], body: bytes, media: MediaEstimate) -> Prompt:
    """Measure what `fields`, the top level of `body`, ask the engine to read."""
    has_escapes = body.find(b"\\") >= 0  # `in` first tries whether it is a number, by an exception
    text_bytes = tokens = 0
    for name in api.texts:
        raw = fields.get(name)
        if raw is not None:
            text_bytes += _text_bytes(raw) if has_escapes else len(raw)
            if _may_hold_media(bytes(raw)):
                payload_bytes, media_tokens = _weigh_media(_looked_into(raw), media)
                text_bytes -= payload_bytes
                tokens += media_tokens
    if api.batch is None:
        return Prompt(max(text_bytes, 0), tokens, 1)
    batch = _measure_batch(fields.get(api.batch), media)
    # A cross-encoder reads the query anew beside each document.
    readings = batch.prompts if api is RERANK else 1
    text_bytes = max(text_bytes * readings + batch.text_bytes, 0)
    return Prompt(text_bytes, tokens + batch.tokens_known, batch.prompts)


def _may_hold_media(text: bytes) -> bool:
    """From the end, which for Python means by the first letter of what is sought: quotes are few."""
    if text.rfind(b'"image') >= 0:
        return True
    return text.find(b"_") >= 0 and any(text.rfind(marker) >= 0 for marker in _MARKERS)


def _text_bytes(raw: msgspec.Raw) -> int:
    """Length in UTF-8: an escape such as \\u4f60 takes six bytes, its character three. Long: sampled."""
    sample = memoryview(raw)[:_SAMPLE_BYTES]
    surplus = 3 * len(_UNICODE_ESCAPE.findall(sample))
    return len(raw) - surplus * len(raw) // len(sample)


def _measure_batch(raw: msgspec.Raw | None, media: MediaEstimate) -> Prompt:
    if raw is None:
        return Prompt(0, 0, 1)
    text = bytes(raw)
    if not text.startswith(b"["):
        looked_into = _looked_into(raw) if _may_hold_media(text) else None
        payload_bytes, media_tokens = _weigh_media(looked_into, media)
        return Prompt(_text_bytes(raw) - payload_bytes, media_tokens, 1)
    if b'"' not in text and b"{" not in text:
        # Only numbers, in one list or in lists: exactly one comma parts each from the next.
        tokens = 0 if text.translate(None, b"[] \t\r\n,") == b"" else text.count(b",") + 1
        return Prompt(0, tokens, max(text.count(b"[") - 1, 1))
    values = _values_at_most(text)
    items = _decoded(raw) if values <= MOST_VALUES else None
    return Prompt(len(text), 0, values) if items is None else _measure_list(items, media)


def _measure_list(items: list[Any], media: MediaEstimate) -> Prompt:
    """A list that holds text: each element is one prompt, unless token ids and text are mixed in one."""
    text_bytes = tokens = 0
    waiting = [*items]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            text_bytes += len(item) if item.isascii() else len(item.encode())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            payload_bytes, media_tokens = _weigh_media(item, media)
            text_bytes += max(len(msgspec.json.encode(item)) - payload_bytes, 0)
            tokens += media_tokens
        else:
            tokens += 1
    mixed = any(isinstance(item, int) for item in items)
    return Prompt(text_bytes, tokens, 1 if mixed else max(len(items), 1))


def _weigh_media(value: Any, media: MediaEstimate) -> tuple[int, int]:
    """Bytes of media payload in a decoded value, and the tokens that all its media are taken to cost."""
    payload_bytes = tokens = 0
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            kind = _kind_of(node)
            if kind is None:
                waiting.extend(node.values())
            else:
                payload_bytes += sum(_string_bytes(node[name]) for name in _PAYLOADS if name in node)
                tokens += {"image": media.image_tokens, "audio": media.audio_tokens}.get(
                    kind, media.video_tokens
                )
    return payload_bytes, tokens


def _kind_of(part: dict[str, Any]) -> str | None:
    stated = part.get("type")
    if stated is None:
        return next((kind for name, kind in _MEDIA.items() if name in part), None)
    return _MEDIA.get(stated) if isinstance(stated, str) else None


def _string_bytes(payload: Any) -> int:
    if isinstance(payload, str):
        return len(payload)
    if isinstance(payload, dict):
        return sum(len(member) for member in payload.values() if isinstance(member, str))
    return 0


def _values_at_most(text: bytes) -> int:
    """Never less than the values that JSON holds, and no more unless they are more than MOST_VALUES.

    Each value follows a bracket, a comma or, in an object, a colon, whose members are parted by commas too.
    So the commas and the brackets that open are counted, at first wherever they stand, and only if these
    are many without those inside strings.
    """
    values = _count(text)
    if values <= MOST_VALUES:
        return values
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # what quotes are left begin or end strings
    if text.count(b'"') > 4 * MOST_VALUES:  # two for the value, two for its name
        return values
    return _count(b"".join(text.split(b'"')[::2]))


def _count(text: bytes) -> int:
    return 1 + len(text) - len(text.translate(None, b",[{"))


def _looked_into(raw: msgspec.Raw) -> Any:
    """The value decoded; None if it is too large to look for media in it, which then count as text."""
    return _decoded(raw) if _values_at_most(bytes(raw)) <= MOST_VALUES else None


def _decoded(raw: msgspec.Raw) -> Any:
    """The value, or None where a number in it is beyond what Python's float can hold."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


AFFINITY_BYTES = 1024
_AFFINITY_KEYS = ("prompt_cache_key", "user", "session_id", "session")
_PREFIXES = ("system", "instructions", "messages", "prompt", "input", "query")


def affinity_source(fields: Mapping[str, msgspec.Raw]) -> bytes | None:
    """What requests that should meet the same prefix cache share: a stated key, else the prompt's start."""
    for name in _AFFINITY_KEYS:
        raw = fields.get(name)
        if raw is not None and len(raw) > 2 and memoryview(raw)[0] == _QUOTE:
            return bytes(raw)
    start = b""
    for name in _PREFIXES:
        raw = fields.get(name)
        if raw is not None and len(start) < AFFINITY_BYTES:
            start += memoryview(raw)[: AFFINITY_BYTES - len(start)]
    return start or None


_QUOTE = ord('"')
