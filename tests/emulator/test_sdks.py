"""Do the official SDKs take the emulator for the real thing?"""

from __future__ import annotations

import pytest
from openai import BadRequestError, InternalServerError, NotFoundError

from tests.emulator.inside import MODEL, Inside
from tests.sdk import anthropic_at, chat, complete, openai_at

EXACT = {"max_tokens": 12, "extra_body": {"ignore_eos": True}}


def test_chat_and_completions(quick: Inside) -> None:
    """Streamed and whole answers agree in text, reason and usage."""
    with openai_at(quick.url) as client:
        whole = chat(client, MODEL, "How high is the tide?", stream=False, **EXACT)
        assert whole == chat(client, MODEL, "How high is the tide?", stream=True, **EXACT)
        assert (len(whole.text), whole.finish_reason, whole.output_tokens) == (48, "length", 12)

        whole = complete(client, MODEL, [1, 2, 3], stream=False, **EXACT)
        assert whole == complete(client, MODEL, [1, 2, 3], stream=True, **EXACT)
        assert whole.prompt_tokens == 3


def test_the_other_openai_routes(quick: Inside) -> None:
    """Models, embeddings in the SDK's own base64, and errors as its own exceptions."""
    with openai_at(quick.url) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        vectors = client.embeddings.create(input=["red", "blue"], model=MODEL, dimensions=8).data
        assert [len(vector.embedding) for vector in vectors] == [8, 8]
        with pytest.raises(NotFoundError):
            chat(client, "other", "Hi", stream=False)
        with pytest.raises(BadRequestError, match="maximum context length"):
            chat(client, MODEL, "Hi", stream=True, max_tokens=10_000)


def test_responses(quick: Inside) -> None:
    """The stream's last event holds the response that the whole answer is; a cut one is incomplete."""
    with openai_at(quick.url) as client:
        whole = client.responses.create(model=MODEL, input="Hello", instructions="Be brief")
        assert (whole.status, whole.incomplete_details) == ("completed", None)
        assert whole.usage is not None
        assert whole.usage.output_tokens == len(whole.output_text) // 4

        with client.responses.stream(model=MODEL, input="Hello", instructions="Be brief") as stream:
            events = list(stream)
            final = stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
        assert (final.output_text, final.usage) == (whole.output_text, whole.usage)

        cut = client.responses.create(model=MODEL, input="Hello", max_output_tokens=2)
        assert cut.status == "incomplete"
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"


def test_messages(quick: Inside) -> None:
    """Anthropic's SDK reads whole messages, streams and errors."""
    with anthropic_at(quick.url) as client:
        hello = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
        whole = client.messages.create(model=MODEL, max_tokens=3, messages=hello, system="Be brief")  # type: ignore[arg-type]
        assert (whole.stop_reason, whole.usage.output_tokens) == ("max_tokens", 3)

        with client.messages.stream(model=MODEL, max_tokens=3, messages=hello, system="Be brief") as stream:  # type: ignore[arg-type]
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == whole.content[0].text  # type: ignore[union-attr]
        assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


def test_faults_as_exceptions(quick: Inside) -> None:
    """An injected error is the SDK's own server error."""
    with openai_at(quick.url) as client:
        client.with_options(base_url=quick.url).post(
            "/emulator/fault", cast_to=object, body={"kind": "error_500", "requests": 1}
        )
        with pytest.raises(InternalServerError):
            chat(client, MODEL, "Hi", stream=False)
        assert chat(client, MODEL, "Hi", stream=False, max_tokens=1).text
