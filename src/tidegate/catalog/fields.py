"""What does one field of a model's config.json say, and is it something that can be?

A config.json is written by others, so nothing of it is believed: every field is asked for by its kind and
range, and one that cannot be is refused by its name. What was asked for is remembered: a field that shapes
a model and that nobody asked for means that the model was not understood.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NoReturn

from tidegate.catalog.shaping import SHAPING
from tidegate.core.errors import ConfigurationError

MOST = 1 << 40
"""No size of a model is larger, and none that is smaller overflows a float when multiplied by others."""
MOST_LAYERS = 4096


class Fields:
    """One object of a config.json. Everything that it returns holds what it promises, or it raises
    ConfigurationError with the name of the field.
    """

    def __init__(self, values: Mapping[str, object], of: str, path: str = "") -> None:
        self._values = values
        self._of = of
        self._path = path
        self._asked: set[str] = set()

    def with_defaults(self, defaults: Mapping[str, object]) -> Fields:
        """The same, where what is absent or null is as in `defaults`."""
        said = {name: value for name, value in self._values.items() if value is not None}
        return Fields({**defaults, **said}, self._of, self._path)

    def has(self, name: str) -> bool:
        """Whether it is set, and to something else than null."""
        self._asked.add(name)
        return self._values.get(name) is not None

    def size(self, name: str, default: int | None = None, *, least: int = 1, most: int = MOST) -> int:
        """A whole number from `least` to `most`. Without a default the field must be there."""
        if not self.has(name):
            return self.lacking(name, "a whole number") if default is None else default
        return self._whole(name, self._values[name], least, most)

    def maybe(self, name: str) -> int | None:
        """A whole number of at least 1, or None where the field is absent, null or 0."""
        return self.size(name, 0, least=0) or None

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._values[name] if self.has(name) else default
        return value if isinstance(value, bool) else self.wrong(name, "must be true or false")

    def number(self, name: str) -> float:
        """A number above 0 and below `MOST`."""
        value = self._values[name] if self.has(name) else self.lacking(name, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
            self.wrong(name, "must be a number above 0")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self._values[name] if self.has(name) else default
        return value if isinstance(value, str) else self.wrong(name, "must be a text")

    def section(self, name: str) -> Fields:
        """An object; empty where the field is absent."""
        value = self._values[name] if self.has(name) else {}
        if not isinstance(value, dict):
            self.wrong(name, "must be an object")
        return Fields(value, self._of, f"{self._path}{name}.")

    def section_list(self, name: str) -> list[Fields]:
        """A list of objects."""
        found = self._list(name)
        if not all(isinstance(each, dict) for each in found):
            self.wrong(name, "must be a list of objects")
        return [
            Fields(each, self._of, f"{self._path}{name}[{i}].")
            for i, each in enumerate(found)
            if isinstance(each, dict)
        ]

    def sections(self) -> list[tuple[str, Fields]]:
        """Every value of this object, each of which must be an object."""
        return [(name, self.section(name)) for name in self._values]

    def texts(self, name: str, most: int = MOST_LAYERS) -> list[str]:
        """A list of texts; empty where the field is absent."""
        found = self._list(name, most) if self.has(name) else []
        texts = [each for each in found if isinstance(each, str)]
        return texts if len(texts) == len(found) else self.wrong(name, "must be a list of texts")

    def sizes(self, name: str, most: int = MOST) -> list[int]:
        """A list of whole numbers of at least 0; empty where the field is absent."""
        found = self._list(name) if self.has(name) else []
        if any(
            isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= most for each in found
        ):
            self.wrong(name, f"must be a list of whole numbers from 0 to {most}")
        return [each for each in found if isinstance(each, int)]

    def is_list(self, name: str) -> bool:
        """Whether it is a list: some fields are one number for all layers, or one for each."""
        return self.has(name) and isinstance(self._values[name], list)

    def without(self, name: str) -> None:
        """Refuse a field that is set to anything that counts: what it does to a model is not described."""
        if self.has(name) and self._values[name]:
            self.wrong(
                name, "does something that cannot be described; describe the model in a catalogue file"
            )

    def unasked(self) -> list[str]:
        """Fields that shape some models, are set here, and that nobody asked for."""
        return sorted(name for name in SHAPING - self._asked if self._values.get(name))

    def ignore(self, names: Iterable[str]) -> None:
        """These say nothing here."""
        self._asked.update(names)

    def lacking(self, name: str, wanted: str) -> NoReturn:
        """Refuse for want of a field."""
        raise ConfigurationError([f"{self._of}: lacks {self._path}{name}; it needs {wanted}"])

    def wrong(self, name: str, text: str) -> NoReturn:
        """Refuse a field, and show the beginning of what it says."""
        shown = json.dumps(self._values.get(name), default=str)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        raise ConfigurationError([f"{self._of}: {self._path}{name} is {shown}; it {text}"])

    def _list(self, name: str, most: int = MOST_LAYERS) -> list[object]:
        value = self._values[name] if self.has(name) else self.lacking(name, "a list")
        if not isinstance(value, list) or len(value) > most:
            self.wrong(name, f"must be a list of at most {most}")
        return value

    def _whole(self, name: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong(name, f"must be a whole number from {least} to {most}")
        return value
