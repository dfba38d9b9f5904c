"""What does a name of a model or an accelerator stand for?

What ships is part of the package, as code is: it is read through `importlib.resources` when it is first asked
for, and kept. Nothing here opens a file that a user names; whoever does hands over what it says.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec

from tidegate.catalog.accelerators import Accelerator, Price
from tidegate.catalog.models import Model
from tidegate.catalog.names import found

T = TypeVar("T")


class Catalog(msgspec.Struct, frozen=True):
    """Accelerators and models by name."""

    accelerators: dict[str, Accelerator]
    models: dict[str, Model]

    @staticmethod
    def shipped() -> Catalog:
        """What ships with tidegate."""
        return _shipped()

    def accelerator(self, name: str) -> Accelerator:
        """By name or alias (`names` has the rules). Raises ConfigurationError that names the nearest."""
        return found(name, self.accelerators, "accelerator", aliases=lambda each: each.aliases)

    def model(self, name: str) -> Model:
        """By name (`names` has the rules). Raises ConfigurationError that names the nearest."""
        return found(name, self.models, "model", shape=_shape)

    def extended(
        self,
        *,
        accelerators: tuple[Accelerator, ...] = (),
        models: tuple[Model, ...] = (),
        prices: dict[str, Price] | None = None,
    ) -> Catalog:
        """With these added, in place of those of the same name; prices replace what accelerators cost.

        What is added comes first: where a short name means several, it means these.
        """
        every = _first({each.name: each for each in accelerators}, self.accelerators)
        for name, price in (prices or {}).items():
            accelerator = Catalog(every, {}).accelerator(name)
            every[accelerator.name] = msgspec.structs.replace(accelerator, price=price)
        return Catalog(every, _first({each.name: each for each in models}, self.models))


def _first(own: dict[str, T], others: dict[str, T]) -> dict[str, T]:
    return own | {name: each for name, each in others.items() if name not in own}


def _shape(model: Model) -> Model:
    return msgspec.structs.replace(model, name="", source="", dated="", left_out=())


@cache
def _shipped() -> Catalog:
    data = files("tidegate.data")
    table = tomllib.loads(data.joinpath("accelerators.toml").read_text(encoding="utf-8"))
    accelerators = {
        name: msgspec.convert({"name": name, **entry}, Accelerator)
        for name, entry in table["accelerators"].items()
    }
    lines = data.joinpath("models.jsonl").read_bytes()
    models = msgspec.json.Decoder(Model).decode_lines(lines)
    return Catalog(accelerators, {model.name: model for model in models})
