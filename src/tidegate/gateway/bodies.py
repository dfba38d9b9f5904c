"""What does a request's body ask for, and what may the engine see of it?

A body is opened one level deep. The few fields that decide are judged; the rest stays raw. `write`
makes the top level anew from those raw values: values travel byte for byte, but of duplicate or
escaped names only the one that was judged (the last) is left, so nobody can show the gateway one
bound and the engine another.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from tidegate.gateway.apis import APIS, Api
from tidegate.gateway.prompts import MediaEstimate, affinity_source, measure

MOST = 2**31 - 1
"""Largest count taken; llama.cpp's own limit, and beyond any context."""

MOST_CHOICES: Final = 1_024
"""Outputs of one body, prompts times `n` or `best_of`. OpenAI takes 128 for `n` and 20 for `best_of` (API
reference); an engine runs each as a sequence, and vLLM by default 256 or 1,024 of those at once, by GPU."""

MOST_MEMBERS: Final = 1_000
"""Members at the top level. OpenAI's largest route knows some 40, engines twice as many."""
OPTIONS_BYTES = 4_096
"""Size of `stream_options`, of which all that is known are four switches."""

MOST_PROMPTS: Final = 8_192
"""Prompts, inputs or documents in one body. OpenAI's embeddings take 2,048 (API reference, `input`); four
times as many, because engines set no bound of their own and some clients rely on that."""

QUEUE_JUMPING: Final = frozenset(
    {
        # vLLM: own place in its queue, its cache and KV transfers (which name hosts), hooks of plugins.
        "priority",
        "kv_transfer_params",
        "ec_transfer_params",
        "cache_salt",
        "vllm_xargs",
        "request_id",
        "data_parallel_rank",
        # SGLang: the same, and a peer to fetch a prefill from.
        "rid",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        # llama.cpp: a certain slot, with whoever's prompt is cached there.
        "id_slot",
        # Dynamo's extensions, routing hints among them.
        "nvext",
    }
)
"""Fields by which a client could overtake others inside an engine, or reach past it."""


class Problem(NamedTuple):
    """Why a body is refused with 400: the field (OpenAI's `param`) and what to do about it."""

    param: str | None
    message: str


class Body:
    """A body that was judged: what policy must know of it, and the raw values to send on."""

    __slots__ = (
        "answers",
        "api",
        "choices",
        "fields",
        "max_tokens",
        "model",
        "prompt_bytes",
        "prompt_tokens_known",
        "prompts",
        "raw",
        "stream",
        "wants_usage",
    )

    def __init__(
        self,
        *,
        api: Api,
        raw: bytes,
        fields: dict[str, msgspec.Raw],
        model: str,
        stream: bool,
        wants_usage: bool,
        max_tokens: int | None,
        choices: int,
        answers: int,
        prompts: int,
        prompt_bytes: int,
        prompt_tokens_known: int,
    ) -> None:
        self.api: Final = api
        self.raw: Final = raw
        """As it came; the fields are slices of it."""
        self.fields: Final = fields
        self.model: Final = model
        self.stream: Final = stream
        self.wants_usage: Final = wants_usage
        """The client itself asked for the usage chunk of a stream."""
        self.max_tokens: Final = max_tokens
        self.choices: Final = choices
        """Outputs that are generated: max(n, best_of) times prompts."""
        self.answers: Final = answers
        """Outputs that come back: n times prompts; what a `Relay` must see end."""
        self.prompts: Final = prompts
        """Prompts, inputs or documents in the batch; 1 where there is no batch."""
        self.prompt_bytes: Final = prompt_bytes
        self.prompt_tokens_known: Final = prompt_tokens_known

    @property
    def affinity_source(self) -> bytes | None:
        """Bytes to hash for session or prefix affinity; None when there are none."""
        return affinity_source(self.fields)

    def write(
        self,
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        inject_usage: bool = False,
        as_stream: bool = False,
        keep: frozenset[str] = frozenset(),
    ) -> bytes:
        """The body for the engine. None leaves what the client said; `keep` lets queue-jumpers through.

        `as_stream` asks for a stream, and its usage, although the client wants the answer whole.
        """
        asks_usage = inject_usage and self.stream and self.api.asks_usage
        if model is None and max_tokens is None and not (asks_usage or as_stream) and self._is_plain():
            return self.raw
        fields: dict[str, Any] = self.fields.copy()
        if model is not None:
            fields["model"] = model
        if max_tokens is not None and self.api.bounds:
            self._bound(fields, max_tokens)
        if asks_usage:
            fields["stream_options"] = self._options_with_usage()
        if as_stream:
            fields["stream"] = True
            fields["stream_options"] = {"include_usage": True}
        if any(name in QUEUE_JUMPING for name in fields):
            for name in QUEUE_JUMPING - keep:
                fields.pop(name, None)
        return _encode(fields)

    def _is_plain(self) -> bool:
        """Whether writing the fields anew would give the body as it came, told without doing it.

        Each member takes its name, its value and four characters: two quotes, a colon, and a comma or
        bracket. Where there is room for no more, there are no white space, no second member of a name and no
        escapes.
        """
        least_bytes = 1
        for name, value in self.fields.items():
            if name in QUEUE_JUMPING:
                return False
            least_bytes += len(name) + len(value) + 4
        return least_bytes == len(self.raw)

    def _bound(self, fields: dict[str, Any], max_tokens: int) -> None:
        """Write the bound under the names that the client used, else under the one that all engines know."""
        used = [name for name in self.api.bounds if name in fields and fields[name] != _NULL]
        for name in self.api.bounds:
            fields.pop(name, None)
        for name in used or self.api.bounds[:1]:
            fields[name] = max_tokens
        least = fields.get("min_tokens")  # vLLM refuses a minimum above the maximum
        if least is not None and (_COUNT.decode(least) or 0) > max_tokens:
            fields["min_tokens"] = max_tokens

    def _options_with_usage(self) -> dict[str, Any]:
        raw = self.fields.get("stream_options")
        options: dict[str, Any] = dict((_OPTIONS.decode(raw) if raw is not None else None) or {})
        options["include_usage"] = True
        if not self.wants_usage:
            # Usage in every chunk cannot be withheld, and vLLM sends it only to who asked for usage.
            options.pop("continuous_usage_stats", None)
        return options


def open_body(api: Api, raw: bytes, media: MediaEstimate = MediaEstimate()) -> Body | Problem:  # noqa: B008
    """Judge a body. Never raises: whatever the bytes are, the answer is a value."""
    opened = _open(raw)
    if isinstance(opened, Problem):
        return opened
    said = _read(api, opened)
    if isinstance(said, Problem):
        return said
    if "model" not in said:
        return Problem("model", "'model' is missing; name the model that is to answer.")
    bound = _one_bound(api, said)
    if isinstance(bound, Problem):
        return bound
    options = said.get("stream_options") or {}
    include_usage = options.get("include_usage")
    if include_usage is not None and include_usage not in _SWITCHES:
        return _wrong("stream_options.include_usage", "true or false")
    prompt = measure(api, opened, raw, media)
    prompts = prompt.prompts
    if prompts > MOST_PROMPTS:
        return Problem(
            api.batch,
            f"'{api.batch}' holds more than {MOST_PROMPTS} elements; send them in several requests.",
        )
    returned, generated = _outputs(said)
    if api.generates and generated * prompts > MOST_CHOICES:
        batch = api.batch if api.batch is not None and prompts > 1 else None
        return _too_many_choices(said, generated * prompts, batch)
    return Body(
        api=api,
        raw=raw,
        fields=opened,
        model=said["model"],
        stream=said.get("stream") or False,
        wants_usage=include_usage == _TRUE,
        max_tokens=bound,
        choices=generated * prompts if api.generates else 1,
        answers=returned * prompts if api.generates else 1,
        prompts=prompts,
        prompt_bytes=prompt.text_bytes,
        prompt_tokens_known=prompt.tokens_known,
    )


# -- the top level --------------------------------------------------------------------------------

_TOP: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PROMPT_FIELDS = sorted({name for api in APIS.values() for name in (*api.texts, api.batch) if name})
_LARGE = msgspec.json.Decoder(
    msgspec.defstruct("Large", [(name, msgspec.Raw, msgspec.Raw(b"")) for name in _PROMPT_FIELDS])
)
_encode: Final = msgspec.json.Encoder().encode
_TRUE: Final = msgspec.Raw(b"true")
_FALSE: Final = msgspec.Raw(b"false")
_NULL: Final = msgspec.Raw(b"null")
_SWITCHES: Final = (_TRUE, _FALSE, _NULL)


def _open(raw: bytes) -> dict[str, msgspec.Raw] | Problem:
    if not raw:
        return Problem(None, "The body is empty; send a JSON object.")
    if not raw.isascii() and not _is_utf8(raw):
        return Problem(None, "The body is not valid UTF-8; encode the JSON in UTF-8.")
    try:
        fields = None if len(raw) > _MOST_COLONS and _is_crowded(raw) else _TOP.decode(raw)
    except RecursionError:
        return Problem(None, "The body is nested too deeply; flatten it.")
    except msgspec.ValidationError:
        return Problem(None, "The body is not a JSON object; send one, in curly brackets.")
    except msgspec.DecodeError as error:
        return Problem(None, f"The body is not valid JSON; correct it: {error}.")
    if fields is None or len(fields) > MOST_MEMBERS:
        return Problem(None, f"The body has too many members; send at most {MOST_MEMBERS}.")
    return fields


_MOST_COLONS: Final = 2**16
"""As many members are taken apart at most: 30 ms, where three million take seconds."""


def _is_crowded(raw: bytes) -> bool:
    """True if there may be so many members outside of the prompt that even to count them would take long.

    Every member has a colon. Prompts, tools and documents may have any number of them, in objects as in
    text, so that where there are many those are left out; no other field has use for as many.
    """
    colons = raw.count(b":")
    if colons > _MOST_COLONS:
        large = _LARGE.decode(raw)
        colons -= sum(bytes(getattr(large, name)).count(b":") for name in _PROMPT_FIELDS)
    return colons > _MOST_COLONS


def _is_utf8(raw: bytes) -> bool:
    """True if it decodes; in slices, so that a body of megabytes is never whole in memory as text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(raw)
    try:
        for start in range(0, len(raw), _SLICE_BYTES):
            decoder.decode(view[start : start + _SLICE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


_SLICE_BYTES = 2**16


# -- the fields that decide -----------------------------------------------------------------------


class _Reader:
    """How a field is read, and what it must be."""

    def __init__(self, decode: Callable[[msgspec.Raw], Any], expected: str) -> None:
        self.decode: Final = decode
        self.expected: Final = expected


_COUNT = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None)
_OPTIONS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def _options(raw: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    if len(raw) > OPTIONS_BYTES:
        raise msgspec.ValidationError
    return _OPTIONS.decode(raw)


_NAME = _Reader(msgspec.json.Decoder(str).decode, "a string")
_SWITCH = _Reader(msgspec.json.Decoder(bool | None).decode, "true, false or null")
_BOUND = _Reader(_COUNT.decode, f"a whole number from 0 to {MOST}, or left out for no bound")
_AT_LEAST_ONE = _Reader(
    msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None).decode,
    f"a whole number from 1 to {MOST_CHOICES}, or null",
)

_GENERATING: dict[str, _Reader] = {
    "model": _NAME,
    "stream": _SWITCH,
    "stream_options": _Reader(_options, f"an object or null, of at most {OPTIONS_BYTES} bytes"),
    "n": _AT_LEAST_ONE,
    "n_cmpl": _AT_LEAST_ONE,  # llama.cpp's name for n
    "best_of": _AT_LEAST_ONE,
    "min_tokens": _BOUND,
}

_READERS: Final[dict[str, dict[str, _Reader]]] = {
    api.name: (_GENERATING | dict.fromkeys(api.bounds, _BOUND) if api.generates else {"model": _NAME})
    for api in APIS.values()
}


def _read(api: Api, fields: dict[str, msgspec.Raw]) -> dict[str, Any] | Problem:
    readers = _READERS[api.name]
    said: dict[str, Any] = {}
    for name, raw in fields.items():
        reader = readers.get(name)
        if reader is not None:
            try:
                said[name] = reader.decode(raw)
            except msgspec.DecodeError:
                return _wrong(name, reader.expected)
    return said


def _one_bound(api: Api, said: dict[str, Any]) -> int | Problem | None:
    """The output bound, if all names that carry one agree: engines differ in which they believe."""
    bound: int | None = None
    for name in api.bounds:
        value = said.get(name)
        if value is None:
            continue
        if bound is not None and value != bound:
            return Problem(name, f"'{name}' contradicts another output bound; send only one of them.")
        bound = value
    return bound


def _outputs(said: dict[str, Any]) -> tuple[int, int]:
    """Outputs that come back and that are generated, per prompt."""
    if "n" not in said and "n_cmpl" not in said and "best_of" not in said:
        return 1, 1
    returned = max(said.get("n") or 1, said.get("n_cmpl") or 1)
    return returned, max(returned, said.get("best_of") or 1)


def _too_many_choices(said: dict[str, Any], choices: int, batch: str | None) -> Problem:
    named = [name for name in ("best_of", "n", "n_cmpl") if said.get(name) is not None]
    param = max(named, key=lambda name: int(said[name]), default=batch)
    return Problem(param, f"The body asks for {choices} outputs; ask for at most {MOST_CHOICES}.")


def _wrong(name: str, expected: str) -> Problem:
    return Problem(name, f"'{name}' must be {expected}.")
