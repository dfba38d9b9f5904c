"""Bodies made to be expensive to judge: the event loop must not stand still for any of them."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.test_bodies import JSON
from tidegate.gateway import prompts
from tidegate.gateway.apis import APIS, CHAT, COMPLETIONS, EMBEDDINGS, RERANK, Api
from tidegate.gateway.bodies import MOST_MEMBERS, MOST_PROMPTS, Body, Problem, open_body

BODY_BYTES = 32 * 2**20
"""What the server takes of a body."""
PATIENCE_S = 2.0
"""Of CPU time. Usual are 0.05 to 0.3 s, before there was a bound it was 2 to 28 s."""
IMAGE = b'"image_url",'


def filled(start: bytes, unit: bytes, end: bytes) -> bytes:
    """As many units as fit, parted by commas."""
    times = (BODY_BYTES - len(start) - len(end)) // (len(unit) + 1)
    return start + (unit + b",") * (times - 1) + unit + end


def names() -> bytes:
    return b'{"model":"m",' + b",".join(b'"%d":1' % at for at in range(2_900_000)) + b"}"


@pytest.mark.parametrize(
    ("api", "start", "unit", "end", "problem"),
    [
        (CHAT, b"", b"", b"", "at most 1000"),  # `names`
        (CHAT, b'{"model":"m",', b'"":1', b"}", "at most 1000"),
        (CHAT, b'{"model":"m","stream_options":{', b'"":1', b"}}", "too many members"),
        (CHAT, b'{"model":"m","messages":[' + IMAGE, b"[]", b"]}", None),
        (CHAT, b'{"model":"m","messages":[' + IMAGE, b'{"":{}}', b"]}", None),
        (CHAT, b'{"model":"m","messages":[' + IMAGE + b'"', b'\\",\\\\:', b'"]}', None),
        (COMPLETIONS, b'{"model":"m","prompt":[' + IMAGE, b"[]", b"]}", "more than 8192"),
        (COMPLETIONS, b'{"model":"m","prompt":[', b"[]", b"]}", "more than 8192"),
        (COMPLETIONS, b'{"model":"m","prompt":["a",[', b"1", b"]]}", "more than 8192"),
        (RERANK, b'{"model":"m","query":"a","documents":[', b'{"text":"a"}', b"]}", "more than 8192"),
    ],
)
def test_no_body_stalls_the_loop(
    api: Api, start: bytes, unit: bytes, end: bytes, problem: str | None
) -> None:
    """The largest body of each hostile shape is judged in a moment, and counts for all of its text."""
    raw = filled(start, unit, end) if unit else names()
    begun_at = time.process_time()
    body = open_body(api, raw)

    assert time.process_time() - begun_at < PATIENCE_S
    if isinstance(body, Problem):
        assert problem is not None
        assert problem in body.message
    else:
        assert problem is None
        assert body.prompt_bytes + 4 * body.prompt_tokens_known > BODY_BYTES - 100


def opened(api: Api, said: dict[str, Any]) -> Body | Problem:
    return open_body(api, json.dumps({"model": "m"} | said, ensure_ascii=False).encode())


def test_members_are_bounded() -> None:
    """As many members as the bound are taken and one more is not, under different names or under one."""
    most = {f"x{at}": at for at in range(MOST_MEMBERS - 1)}
    assert isinstance(opened(CHAT, most), Body)
    problem = opened(CHAT, most | {"x": 1})
    assert isinstance(problem, Problem)
    assert str(MOST_MEMBERS) in problem.message

    options = {f"x{at}": at for at in range(1_000)}
    problem = opened(CHAT, {"stream_options": options})
    assert isinstance(problem, Problem)
    assert problem.param == "stream_options"


@pytest.mark.parametrize(("api", "field"), [(EMBEDDINGS, "input"), (RERANK, "documents")])
@pytest.mark.parametrize("element", ["text, with: a comma", [1, 2], {"text": "a", "title": ["b", {}]}])
def test_batches_are_bounded(api: Api, field: str, element: Any) -> None:
    """As many elements as the bound are taken and one more is not, whatever they are."""
    body = opened(api, {field: [element] * MOST_PROMPTS})
    assert isinstance(body, Body)
    assert body.prompts == MOST_PROMPTS
    problem = opened(api, {field: [element] * (MOST_PROMPTS + 1)})
    assert isinstance(problem, Problem)
    assert problem.param == field
    assert str(MOST_PROMPTS) in problem.message


CODE = 'f(a, [b, {"c": \\1}], "d:e") ' * 40_000
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 10_000}}


def test_what_text_says_is_no_structure() -> None:
    """A megabyte of code beside a picture, and 5,000 turns, are legitimate: nothing of them is a member."""
    said = {"messages": [{"role": "user", "content": [{"type": "text", "text": CODE}, PICTURE]}]}
    body = opened(CHAT, said)
    assert isinstance(body, Body)
    assert body.prompt_tokens_known == 1000
    assert len(CODE) < body.prompt_bytes < 1.3 * len(CODE)

    turn = {"role": "tool", "tool_call_id": "1", "name": "x", "content": "a: b, c: d"}
    body = opened(CHAT, {"messages": [turn] * 20_000})
    assert isinstance(body, Body)

    body = opened(COMPLETIONS, {"prompt": [CODE, CODE]})
    assert isinstance(body, Body)
    assert body.prompts == 2


def _places(value: Any) -> int:
    """Values in a value; an empty list or object has room for one."""
    if isinstance(value, dict):
        value = [*value.values()]
    return 1 + (sum(map(_places, value)) if value else 1) if isinstance(value, list) else 1


@given(value=JSON, most=st.integers(1, 12), ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_only_values_count_as_values(value: Any, most: int, ascii_only: bool, indent: int | None) -> None:
    """What is decoded is never more than the bound, and what text says brings nobody above it."""
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts, "MOST_VALUES", most)
        counted = prompts._values_at_most(raw)

    assert counted >= _places(value)
    assert (counted > most) == (_places(value) > most)


@pytest.mark.parametrize("field", ["prompt", "input", "documents", "messages"])
def test_no_depth_raises(field: str) -> None:
    """Values that just fit the decoder's depth are judged too, beside text and beside pictures."""
    for api in APIS.values():
        for depth in range(1, sys.getrecursionlimit() + 50, 7):
            for start, end in ((b"[", b"]"), (b'{"image_url":', b"}")):
                nested = start * depth + b"1" + end * depth
                raw = b'{"model":"m","%b":["image",%b]}' % (field.encode(), nested)
                assert isinstance(open_body(api, raw), Body | Problem)


def test_every_prompt_may_have_colons() -> None:
    """Whatever field a route reads a prompt from, text in it is not taken for members of the body."""
    for api in APIS.values():
        for name in (*api.texts, api.batch):
            if name is not None:
                body = open_body(api, b'{"model":"m","%b":"%b"}' % (name.encode(), b":" * 70_000))
                assert isinstance(body, Body), name
                assert isinstance(body.fields[name], msgspec.Raw)
