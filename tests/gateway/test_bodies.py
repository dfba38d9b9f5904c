"""Bodies: what is judged, what is refused, and what the engine then sees."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tidegate.gateway.apis import (
    APIS,
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    RESPONSES,
    Api,
)
from tidegate.gateway.bodies import MOST_CHOICES, QUEUE_JUMPING, Body, Problem, open_body

ASK = [{"role": "user", "content": "When is high tide?"}]


def opened(api: Api, raw: bytes | dict[str, Any]) -> Body:
    body = open_body(api, raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    assert isinstance(body, Body), body
    return body


def refused(api: Api, raw: bytes | dict[str, Any]) -> Problem:
    problem = open_body(api, raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    assert isinstance(problem, Problem), problem
    return problem


def rewritten(api: Api, said: dict[str, Any], **changes: Any) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(opened(api, {"model": "m"} | said).write(**changes))
    return written


@pytest.mark.parametrize(
    "api,said,judged",
    [
        (CHAT, {}, {"model": "m", "stream": False, "wants_usage": False, "max_tokens": None, "choices": 1}),
        (CHAT, {"stream": True}, {"stream": True, "wants_usage": False}),
        (CHAT, {"stream": None, "stream_options": None, "max_tokens": None, "n": None}, {"stream": False}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": True}}, {"wants_usage": True}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": False}}, {"wants_usage": False}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": None}}, {"wants_usage": False}),
        (CHAT, {"max_tokens": 7}, {"max_tokens": 7}),
        (CHAT, {"max_completion_tokens": 7}, {"max_tokens": 7}),
        (CHAT, {"n_predict": 7}, {"max_tokens": 7}),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 7}, {"max_tokens": 7}),
        (CHAT, {"max_tokens": None, "max_completion_tokens": 0}, {"max_tokens": 0}),
        (CHAT, {"max_output_tokens": "not ours"}, {"max_tokens": None}),
        (CHAT, {"n": 3}, {"choices": 3, "answers": 3}),
        (CHAT, {"n_cmpl": 3}, {"choices": 3, "answers": 3}),
        (COMPLETIONS, {"n": 2, "best_of": 5, "prompt": "x"}, {"choices": 5, "answers": 2, "prompts": 1}),
        (COMPLETIONS, {"n": 2, "prompt": ["x", "y", "z"]}, {"choices": 6, "answers": 6, "prompts": 3}),
        (RESPONSES, {"input": "x", "max_output_tokens": 9}, {"max_tokens": 9}),
        (MESSAGES, {"messages": ASK, "max_tokens": 9, "stream": True}, {"max_tokens": 9, "stream": True}),
        # What embeddings do not read is not judged.
        (
            EMBEDDINGS,
            {"input": ["a", "b"], "stream": 5, "n": "x"},
            {"stream": False, "choices": 1, "prompts": 2},
        ),
    ],
)
def test_what_a_body_asks_for(api: Api, said: dict[str, Any], judged: dict[str, Any]) -> None:
    """The fields that decide, under any of their names, and null as if left out."""
    body = opened(api, {"model": "m", "messages": ASK} | said)

    assert {name: getattr(body, name) for name in judged} == judged


@pytest.mark.parametrize(
    "said,param,remedy",
    [
        ({"model": 5}, "model", "a string"),
        ({"model": None}, "model", "a string"),
        ({"stream": 1}, "stream", "true, false or null"),
        ({"stream": "true"}, "stream", "true, false or null"),
        ({"stream_options": True}, "stream_options", "an object or null"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or false"),
        ({"max_tokens": -1}, "max_tokens", "left out for no bound"),
        ({"max_tokens": True}, "max_tokens", "a whole number"),
        ({"max_tokens": 1.5}, "max_tokens", "a whole number"),
        ({"max_tokens": "5"}, "max_tokens", "a whole number"),
        ({"max_tokens": 2**31}, "max_tokens", "a whole number"),
        ({"max_completion_tokens": 10**40}, "max_completion_tokens", "a whole number"),
        ({"max_tokens": 5, "max_completion_tokens": 9}, "max_completion_tokens", "send only one"),
        ({"max_tokens": 5, "n_predict": 100_000}, "n_predict", "send only one"),
        ({"n": 0}, "n", "from 1"),
        ({"n": True}, "n", "from 1"),
        ({"best_of": -3}, "best_of", "from 1"),
        ({"n_cmpl": [1]}, "n_cmpl", "from 1"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(said: dict[str, Any], param: str, remedy: str) -> None:
    """A 400 says which field, and what to do."""
    problem = refused(CHAT, {"model": "m", "messages": ASK} | said)

    assert problem.param == param
    assert remedy in problem.message


@pytest.mark.parametrize(
    "api,said,param",
    [
        (CHAT, {"n": 1024}, None),
        (CHAT, {"n": 1025}, "n"),
        (CHAT, {"n": 2**31 - 1}, "n"),
        (CHAT, {"n_cmpl": 1025}, "n_cmpl"),
        (COMPLETIONS, {"prompt": "x", "n": 2, "best_of": 1025}, "best_of"),
        (COMPLETIONS, {"prompt": ["x"] * 1024}, None),
        (COMPLETIONS, {"prompt": ["x"] * 1025}, "prompt"),
        (COMPLETIONS, {"prompt": ["x"] * 8, "n": 128}, None),
        (COMPLETIONS, {"prompt": ["x"] * 8, "n": 2, "best_of": 129}, "best_of"),
        (COMPLETIONS, {"prompt": [[1], [2], [3]], "n": 342}, "n"),
        (RESPONSES, {"input": "x", "n": 1025}, "n"),
        (EMBEDDINGS, {"input": ["x"] * 1025, "n": 10**6}, None),  # nothing is generated
    ],
)
def test_outputs_of_one_body_are_bounded(api: Api, said: dict[str, Any], param: str | None) -> None:
    """Choices times prompts, whatever name asks for them; the 400 names the field that asks for most."""
    body = open_body(api, json.dumps({"model": "m"} | said).encode())
    if param is None:
        assert isinstance(body, Body), body
        assert body.choices <= MOST_CHOICES
    else:
        assert isinstance(body, Problem)
        assert body.param == param
        assert str(MOST_CHOICES) in body.message


@pytest.mark.parametrize(
    "raw,message",
    [
        (b"", "empty"),
        (b"   ", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"model": "m"', "not valid JSON"),
        (b'{"model": "m"} {}', "not valid JSON"),
        (b'\xef\xbb\xbf{"model": "m"}', "not valid JSON"),
        (b'{"model": "m", "x": NaN}', "not valid JSON"),
        (b'{"model": "m", "x": [Infinity]}', "not valid JSON"),
        (b'{"model": "m", "x": 01}', "not valid JSON"),
        (b'{"model": "m", "x": "line\nbreak"}', "not valid JSON"),
        (b'{"model": "m", "x": "\\ud800"}', "not valid JSON"),
        (b'{"model": "m", "x": "\xff"}', "not valid UTF-8"),
        (b'{"model": "m", "x": "\xe6\xbd', "not valid UTF-8"),
        (b'{"model": "m", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"messages": []}', "'model' is missing"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_is_no_json_object_is_refused(raw: bytes, message: str) -> None:
    """Each kind of broken body has its own words."""
    assert message in refused(CHAT, raw).message


def test_wide_characters_across_slices_are_valid() -> None:
    """UTF-8 is checked in slices; a character may lie across two of them."""
    for shift in range(3):
        text = "." * shift + "潮" * 50_000
        assert opened(CHAT, json.dumps({"model": "m", "x": text}, ensure_ascii=False).encode()).model == "m"


@given(raw=st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0019"mode l\n', max_size=60).map(str.encode))
def test_no_bytes_raise(raw: bytes) -> None:
    """Whatever arrives, the answer is a value."""
    for api in APIS.values():
        assert isinstance(open_body(api, raw), Problem | Body)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
READ = [
    "model",
    "stream",
    "stream_options",
    "messages",
    "prompt",
    "input",
    "documents",
    "query",
    "max_tokens",
    "n_predict",
    "n",
    "min_tokens",
    "user",
    "type",
]


@given(said=st.dictionaries(st.sampled_from(READ), JSON), api=st.sampled_from(list(APIS.values())))
def test_no_values_raise(said: dict[str, Any], api: Api) -> None:
    """Any value in any field that is read is judged; sizes are never negative."""
    body = open_body(api, json.dumps({"model": "m"} | said).encode())
    if isinstance(body, Problem):
        assert body.param in READ
        return
    assert min(body.prompt_bytes, body.prompt_tokens_known) >= 0
    assert min(body.prompts, body.choices, body.answers) >= 1
    assert isinstance(body.affinity_source, bytes | None)
    json.loads(body.write(model="other", max_tokens=3, inject_usage=True))


# -- writing --------------------------------------------------------------------------------------


@given(
    said=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name not in QUEUE_JUMPING), JSON, max_size=6
    ),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_values_travel_byte_for_byte(said: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    """Nothing in a value changes: not its white space, not its escapes, not the form of its numbers."""
    said = {"model": "m"} | {f"x_{name}": value for name, value in said.items()}
    raw = json.dumps(said, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    body = open_body(CHAT, raw)
    if isinstance(body, Problem):
        return  # a lone surrogate
    before = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(body.write(model="other"), type=dict[str, msgspec.Raw])

    assert bytes(after.pop("model")) == b'"other"'
    del before["model"]
    assert {name: bytes(value) for name, value in after.items()} == {
        name: bytes(value) for name, value in before.items()
    }


def test_the_engine_sees_only_what_was_judged() -> None:
    """Of duplicate and escaped names the last is judged, and it alone is sent."""
    body = opened(
        CHAT,
        b'{"model":"cheap","max_tokens":1,"mod\\u0065l":"dear","max_tokens" : 7 ,"n":1,"\\u006e":4}',
    )

    assert (body.model, body.max_tokens, body.choices) == ("dear", 7, 4)
    assert body.write() == b'{"model":"dear","max_tokens":7,"n":4}'


@pytest.mark.parametrize(
    "api,said,bounds",
    [
        (CHAT, {}, {"max_tokens": 5}),
        (CHAT, {"max_tokens": 9}, {"max_tokens": 5}),
        (CHAT, {"max_completion_tokens": 9}, {"max_completion_tokens": 5}),
        (CHAT, {"max_completion_tokens": 9, "max_tokens": None}, {"max_completion_tokens": 5}),
        (CHAT, {"max_completion_tokens": 9, "max_tokens": 9}, {"max_completion_tokens": 5, "max_tokens": 5}),
        (CHAT, {"max_tokens": None}, {"max_tokens": 5}),
        (COMPLETIONS, {"n_predict": 9}, {"n_predict": 5}),
        (RESPONSES, {}, {"max_output_tokens": 5}),
        (MESSAGES, {"max_tokens": 9}, {"max_tokens": 5}),
        (CHAT, {"min_tokens": 3}, {"max_tokens": 5, "min_tokens": 3}),
        (CHAT, {"min_tokens": 8}, {"max_tokens": 5, "min_tokens": 5}),
        (EMBEDDINGS, {"input": "x"}, {"input": "x"}),
    ],
)
def test_a_bound_is_written_under_the_clients_own_name(
    api: Api, said: dict[str, Any], bounds: dict[str, int]
) -> None:
    """Every name that the client used gets it; without one, the name that all engines know."""
    assert rewritten(api, said, max_tokens=5) == {"model": "m"} | bounds


@pytest.mark.parametrize(
    "api,said,options",
    [
        (CHAT, {"stream": True}, {"include_usage": True}),
        (COMPLETIONS, {"stream": True, "stream_options": None}, {"include_usage": True}),
        (
            CHAT,
            {"stream": True, "stream_options": {"include_obfuscation": False, "include_usage": False}},
            {"include_obfuscation": False, "include_usage": True},
        ),
        (
            CHAT,
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            {"include_usage": True},  # usage in content chunks could not be withheld
        ),
        (
            CHAT,
            {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            {"include_usage": True, "continuous_usage_stats": True},
        ),
        (CHAT, {"stream": False}, None),
        (CHAT, {}, None),
        (RESPONSES, {"stream": True}, None),
        (MESSAGES, {"stream": True}, None),
    ],
)
def test_usage_is_asked_for_where_a_stream_would_not_tell(
    api: Api, said: dict[str, Any], options: dict[str, Any] | None
) -> None:
    """`include_usage` joins the client's other options; APIs that always tell are left alone."""
    assert rewritten(api, said, inject_usage=True).get("stream_options") == options
    assert rewritten(api, said).get("stream_options") == said.get("stream_options")


def test_queue_jumping_fields_stay_behind() -> None:
    """A client cannot overtake inside the engine, or name hosts to it, unless its pool allows the field."""
    said = dict.fromkeys(sorted(QUEUE_JUMPING), 1) | {"temperature": 0}

    assert rewritten(CHAT, said) == {"model": "m", "temperature": 0}
    assert rewritten(CHAT, said, keep=frozenset({"priority", "cache_salt", "unknown"})) == {
        "model": "m",
        "temperature": 0,
        "priority": 1,
        "cache_salt": 1,
    }
    escaped = opened(CHAT, b'{"model":"m","priorit\\u0079":-5}')
    assert escaped.write() == b'{"model":"m"}'


def test_writing_leaves_the_body_as_it_was() -> None:
    """A retry and a fallback write the same body again, differently."""
    body = opened(CHAT, {"model": "m", "stream": True, "priority": 1, "max_tokens": 9})
    first = body.write(model="a", max_tokens=1, inject_usage=True)

    assert json.loads(body.write()) == {"model": "m", "stream": True, "max_tokens": 9}
    assert body.write(model="a", max_tokens=1, inject_usage=True) == first


NAMES = st.sampled_from(["a", "b", "é", '"', "\\", "priority"])
MEMBERS = st.lists(
    st.tuples(NAMES, st.sampled_from(["1", '"a \\u00e9"', "[ ]", '{"a":1,"a":2}'])), max_size=4
)
SPACES = st.sampled_from(["", "", "", " ", "\n"])


@given(MEMBERS, SPACES, st.booleans())
def test_a_body_travels_as_it_came_only_if_writing_it_would_change_nothing(
    members: list[tuple[str, str]], space: str, escaped: bool
) -> None:
    """White space, a name twice, escapes: whatever it holds, what is written is its judged fields."""
    said = [(json.dumps(name, ensure_ascii=escaped), value) for name, value in members]
    said.append(('"model"', '"m"'))
    raw = ("{" + ",".join(f"{name}{space}:{value}" for name, value in said) + "}" + space).encode()
    body = opened(CHAT, raw)
    kept = {name: value for name, value in body.fields.items() if name not in QUEUE_JUMPING}

    written = body.write()

    assert written == msgspec.json.encode(kept)
    event("as it came" if written is raw else "anew")
