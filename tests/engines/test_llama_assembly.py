"""Is an answer assembled from llama.cpp's stream the one that it gives whole?

Asked the same twice, once each way, with sampling that chooses the same tokens. What llama.cpp itself
tells differently in the two is left out of the comparison, and is all of this:

- `id`, `created`, `timings`, and the `id` of tool calls: new with each request; here those of the stream;
- `object`: names the form; here that of whole answers;
- `content`: streams begin with null, whole answers have an empty string even beside tool calls, and so here;
- `usage` of several choices: streams tell each one's, whole answers the first's, and so here;
- `index` of tool calls, `prompt_progress`: only in streams; left out;
- `__verbose` (only with `verbose: true`): describes the last chunk in a stream, here as last told.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

from tests.engines.install import INSIDE, run
from tests.engines.llama import ALIAS, SCRIPTS, Llama, install_llama
from tests.raw_http import post
from tests.server_process import free_port, started
from tidegate.gateway.apis import CHAT, COMPLETIONS, Api
from tidegate.gateway.assembly import Assembly
from tidegate.gateway.usage import usage_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120, func_only=True)]

SAME_EACH_TIME = {"temperature": 0, "seed": 1, "cache_prompt": False, "ignore_eos": True, "max_tokens": 12}
NEW_EACH_TIME = {"id", "created", "timings"}
NO_LIMIT = {"ignore_eos": False, "max_tokens": 200}


def both_ways(url: str, api: Api, asked: dict[str, Any], choices: int = 1) -> tuple[Any, Any, Assembly]:
    """The engine's own whole answer, the assembled one, and what it was assembled with."""
    body = {"model": ALIAS, **SAME_EACH_TIME, **asked}
    whole = post(url + api.path, body)
    stream = post(url + api.path, body | {"stream": True, "stream_options": {"include_usage": True}})
    assert (whole.status, stream.status) == (200, 200), (whole.body, stream.body)

    assembly = Assembly(api, choices=choices)
    assembly.feed(stream.body)
    answer = assembly.answer()
    assert answer is not None, stream.body
    assert usage_of(api, answer) == usage_of(api, whole.body)
    assert fits_sdk(api, answer) == fits_sdk(api, whole.body)
    return whole.json(), json.loads(answer), assembly


def fits_sdk(api: Api, answer: bytes) -> bool:
    """True if the official SDK's model takes it; llama.cpp has an option whose answers it does not."""
    try:
        (ChatCompletion if api is CHAT else Completion).model_validate_json(answer)
    except ValidationError:
        return False
    return True


def lasting(answer: dict[str, Any]) -> dict[str, Any]:
    """What must be equal each time, of an answer that has all of the rest."""
    assert answer.keys() >= NEW_EACH_TIME
    return {name: value for name, value in answer.items() if name not in NEW_EACH_TIME}


def says(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


HIGH_OR_LOW = {
    "type": "object",
    "properties": {"high": {"type": "boolean"}},
    "required": ["high"],
    "additionalProperties": False,
}
LOGPROBS = {"logprobs": True, "top_logprobs": 3}
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one token": {"max_tokens": 1},
    "nothing": {"logit_bias": {"4": 100}, "ignore_eos": False},
    "stop sequence": {"stop": ["enable"]},
    "stop sequence at once": {"stop": [" |"]},
    "logprobs": LOGPROBS,
    "probabilities after sampling": LOGPROBS | {"post_sampling_probs": True},
    "two choices": {"n": 2},
    "two choices with logprobs": {"n": 2, **LOGPROBS},
    "broken characters": {"max_tokens": 300},
    "json schema": {"response_format": {"type": "json_schema", "json_schema": {"schema": HIGH_OR_LOW}}},
    "tools that the template cannot show": {
        "tools": [{"type": "function", "function": {"name": "tide_at", "parameters": HIGH_OR_LOW}}]
    },
    "progress": {"return_progress": True},
    "timings per token": {"timings_per_token": True},
}


@pytest.mark.parametrize("asked", CHATS.values(), ids=CHATS.keys())
def test_a_chat_answer_is_the_engines_own_whole_one(llama: Llama, asked: dict[str, Any]) -> None:
    """Every member that lasts is equal, and none is missing or added."""
    choices = asked.get("n", 1)
    whole, assembled, assembly = both_ways(llama.url, CHAT, says("Tides wait for") | asked, choices)

    assert lasting(assembled) == lasting(whole)
    assert len(assembled["choices"]) == choices
    made = sum(1 for choice in assembled["choices"] if choice["message"]["content"])
    assert assembly.first_token == bool(made)


COMPLETED: dict[str, dict[str, Any]] = {
    "text": {"prompt": "import os"},
    "token ids": {"prompt": [300, 301, 302, 4000]},
    "n_probs": {"prompt": "import os", "n_probs": 3},
    "logprobs": {"prompt": "import os", "logprobs": 2},
    "one token": {"prompt": "import os", "max_tokens": 1},
    "stop sequence": {"prompt": "import os", "stop": ["TI"]},
    "echo": {"prompt": "import os", "echo": True, "return_tokens": True},
    "grammar": {"prompt": "import os", "grammar": 'root ::= "潮" "\\n" "é"+ "."', **NO_LIMIT},
    "two prompts of different length": {"prompt": ["import os", "def tide(self, moon):"]},
    "two lists of token ids": {"prompt": [[300, 301], [302]], "n_probs": 1},
    "two choices": {"prompt": "import os", "n": 2},
}


@pytest.mark.parametrize("asked", COMPLETED.values(), ids=COMPLETED.keys())
def test_a_completion_is_the_engines_own_whole_one(llama: Llama, asked: dict[str, Any]) -> None:
    """Every member that lasts is equal, and none is missing or added."""
    choices = 2 if "two" in str([name for name, one in COMPLETED.items() if one is asked]) else 1
    whole, assembled, _ = both_ways(llama.url, COMPLETIONS, asked, choices)

    assert lasting(assembled) == lasting(whole)
    assert len(assembled["choices"]) == choices


def test_all_choices_are_counted_though_the_engine_tells_those_of_one(llama: Llama) -> None:
    """llama.cpp's whole answer shows the usage of its first choice; metering needs that of all."""
    _, assembled, assembly = both_ways(llama.url, CHAT, says("Tides") | {"n": 3}, choices=3)

    assert assembled["usage"]["completion_tokens"] == 12
    assert assembly.usage is not None
    assert assembly.usage.output_tokens == 36
    assert assembly.usage.prompt_tokens == assembled["usage"]["prompt_tokens"]


# -- a model that thinks and calls tools ----------------------------------------------------------

TEMPLATE = """
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}
{%- if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""
CALL, END_OF_CALL, END_OF_TEXT = 1, 0, 4
"""Token ids. The first two are made ordinary words here, so that a bias can choose them."""


@pytest.fixture(scope="module")
def caller_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same random model, with a template by which the engine knows of tools and reasoning."""
    installed, folder = install_llama(), tmp_path_factory.mktemp("caller")
    shutil.copytree(installed / "tiny", folder / "tiny")
    teach(folder / "tiny")
    run([installed / "bin" / "python", SCRIPTS[1], folder / "tiny", folder / "caller.gguf"], timeout_s=120)
    port = free_port()
    command: list[str | Path] = [installed / "bin" / "python", INSIDE / "serve_llama.py"]
    command += ["--model", folder / "caller.gguf", "--alias", ALIAS, "--port", str(port)]
    command += ["--slots", "4", "--context", "2048"]
    env = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with started("llama-server", command, folder / "llama.log", env) as server:
        url = f"http://127.0.0.1:{port}"
        server.wait_ready(url + "/health", timeout_s=60)
        yield url
        assert server.stop(grace_s=10) == 0, server.log()[-4000:]


def teach(folder: Path) -> None:
    """Give the model the template, and one token for each end of a call."""
    settings, words = folder / "tokenizer_config.json", folder / "tokenizer.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
    tokenizer = json.loads(words.read_text())
    vocabulary = {id: word for word, id in tokenizer["model"]["vocab"].items()}
    vocabulary |= {CALL: "<tool_call>Ċ", END_OF_CALL: "</tool_call>"}  # Ċ: a line end, byte-level
    tokenizer["model"]["vocab"] = {word: id for id, word in vocabulary.items()}
    special = [token for token in tokenizer["added_tokens"] if token["id"] not in (CALL, END_OF_CALL)]
    words.write_text(json.dumps(tokenizer | {"added_tokens": special}))


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": name, "parameters": HIGH_OR_LOW}}


def calls(*biased: int, think: bool = False) -> dict[str, Any]:
    return {
        "tools": [tool("tide_at"), tool("moon_at")],
        "tool_choice": "required",
        "chat_template_kwargs": {"enable_thinking": think},
        "logit_bias": {str(token): 50 + 10 * place for place, token in enumerate(biased)},
        **NO_LIMIT,
    }


CALLED: dict[str, tuple[dict[str, Any], str]] = {
    "one call": (calls(END_OF_CALL, CALL, END_OF_TEXT), "tool_calls"),
    "calls without end": (calls(END_OF_CALL, CALL) | {"parallel_tool_calls": True}, "length"),
    "a call that breaks off": (calls(END_OF_CALL, CALL, END_OF_TEXT) | {"max_tokens": 14}, "length"),
    "a call in each of two choices": (calls(END_OF_CALL, CALL, END_OF_TEXT) | {"n": 2}, "tool_calls"),
}


@pytest.mark.parametrize("asked, finish", CALLED.values(), ids=CALLED.keys())
def test_tool_calls_are_the_engines_own_whole_ones(
    caller_url: str, asked: dict[str, Any], finish: str
) -> None:
    """Names, ids and arguments come together from their pieces, whatever the content is then."""
    whole, assembled, assembly = both_ways(caller_url, CHAT, says("Tides") | asked, asked.get("n", 1))

    for one in (whole, assembled):
        for choice in one["choices"]:
            for call in choice["message"]["tool_calls"]:
                assert call.pop("id")  # new each time, like that of the answer
    assert lasting(assembled) == lasting(whole)
    assert {choice["finish_reason"] for choice in assembled["choices"]} == {finish}
    assert assembly.first_token


@pytest.mark.parametrize("more", [{}, LOGPROBS, {"n": 2}], ids=["plain", "logprobs", "n"])
def test_reasoning_is_the_engines_own_whole_one(caller_url: str, more: dict[str, Any]) -> None:
    """An answer that ends within its reasoning has the reasoning, and content that is empty, not null."""
    whole, assembled, _ = both_ways(caller_url, CHAT, says("Tides") | more, more.get("n", 1))

    assert lasting(assembled) == lasting(whole)
    message = assembled["choices"][0]["message"]
    assert message["reasoning_content"]
    assert message["content"] == ""
