"""The table of routes is consistent with itself."""

from __future__ import annotations

import pytest

from tidegate.config.checks import API_ROUTES
from tidegate.gateway.apis import APIS, Api, Form


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_each_api_is_whole(api: Api) -> None:
    """A route that generates has a bound and a stream; one that does not has neither."""
    assert APIS[api.path] is api
    assert api.generates == bool(api.bounds)
    assert api.generates == (api.form is not Form.WHOLE)
    assert api.texts or api.batch


def test_no_extra_goes_round_an_api() -> None:
    """The configuration, which lies below the gateway, knows every governed route by itself."""
    assert {*APIS, "/v1/models"} == API_ROUTES


def test_names_are_unique() -> None:
    """A name is a label in metrics, so it stands for one route."""
    assert len({api.name for api in APIS.values()}) == len(APIS) == 6


def test_the_bound_that_is_written_is_one_that_all_engines_know() -> None:
    """Where the client set none: old engines overlook `max_completion_tokens`."""
    preferred = {api.name: api.bounds[0] for api in APIS.values() if api.bounds}
    assert preferred == {
        "chat": "max_tokens",
        "completions": "max_tokens",
        "responses": "max_output_tokens",
        "messages": "max_tokens",
    }
