"""One real engine of each kind for the whole test session, and more of llama.cpp for who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engines.llama import Llama, llama_server
from tests.engines.vllm import Vllm, vllm_server


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """A llama-server with four slots that all tests share: each leaves it idle."""
    with llama_server(tmp_path_factory.mktemp("llama")) as server:
        yield server


@pytest.fixture
def start_llama(tmp_path: Path) -> Iterator[Callable[..., Llama]]:
    """`start_llama(slots=, context_tokens=, embedding=)`: another one, for this test alone."""
    with ExitStack() as stack:

        def start(slots: int = 4, context_tokens: int = 2048, embedding: bool = False) -> Llama:
            return stack.enter_context(llama_server(tmp_path, slots, context_tokens, embedding))

        yield start


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """The one vLLM that all tests share: each leaves it idle."""
    with vllm_server(tmp_path_factory.mktemp("vllm")) as server:
        yield server
