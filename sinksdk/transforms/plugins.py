"""Finds transforms and predicates by the names in configurations."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from sinksdk.compatibility import Meaning
from sinksdk.errors import ConfigException, describe, raised_at
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.transforms.base import BuiltIn, Keys, check_methods
from sinksdk.transforms.cast import Cast
from sinksdk.transforms.chain import Chain, Step
from sinksdk.transforms.fields import HoistField, InsertField, MaskField, ReplaceField, ValueToKey
from sinksdk.transforms.headers import (
    DropHeaders,
    Filter,
    HeaderFrom,
    InsertHeader,
    SetSchemaMetadata,
    TombstoneHandler,
)
from sinksdk.transforms.nested import ExtractField, Flatten
from sinksdk.transforms.parts import PARTS, Part
from sinksdk.transforms.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from sinksdk.transforms.timestamps import TimestampConverter

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_CONFLUENT: Final = "io.confluent.connect.transforms."

KEY_OR_VALUE_TRANSFORMS: Final[Sequence[type[BuiltIn]]] = (
    *(InsertField, ReplaceField, MaskField, ExtractField, HoistField, Flatten, Cast, TimestampConverter),
    *(HeaderFrom, SetSchemaMetadata),
)
RECORD_TRANSFORMS: Final[Sequence[type[BuiltIn]]] = (ValueToKey, Filter, InsertHeader, DropHeaders)
PREDICATES: Final = (RecordIsTombstone, TopicNameMatches, HasHeaderKey)

TRANSFORMS_KEY: Final = "transforms"
PREDICATES_KEY: Final = "predicates"
# Every plugin in Connect has this key; here only one version exists.
_VERSION: Final = "plugin.version"


@dataclass(frozen=True, slots=True)
class Plugin:
    cls: Any
    part: Part | None = None

    @property
    def keys_class(self) -> type[Keys]:
        found: type[Keys] = self.cls.keys_class
        return found

    def make(self, keys: Mapping[str, str]) -> Any:
        parsed = self.keys_class.model_validate(dict(keys))
        return self.cls(parsed) if self.part is None else self.cls(parsed, self.part)


def _named(package: str, name: str, plugin: Plugin) -> dict[str, Plugin]:
    return {package + name: plugin, name: plugin}  # Connect also accepts a class without its package


def _known() -> dict[str, dict[str, Plugin]]:
    transforms: dict[str, Plugin] = {}
    for cls in KEY_OR_VALUE_TRANSFORMS:
        for part in PARTS:
            transforms |= _named(_KAFKA, f"{cls.__name__}${part.capitalize()}", Plugin(cls, part))
    for cls in RECORD_TRANSFORMS:
        transforms |= _named(_KAFKA, cls.__name__, Plugin(cls))
    transforms |= _named(_CONFLUENT, "TombstoneHandler", Plugin(TombstoneHandler))
    predicates: dict[str, Plugin] = {}
    for predicate in PREDICATES:
        predicates |= _named(f"{_KAFKA}predicates.", predicate.__name__, Plugin(predicate))
    return {TRANSFORMS_KEY: transforms, PREDICATES_KEY: predicates}


KNOWN: Final[Mapping[str, Mapping[str, Plugin]]] = _known()

Kind = Literal["transforms", "predicates"]
_METHODS: Final = {TRANSFORMS_KEY: "apply", PREDICATES_KEY: "test"}
_WORDS: Final = {TRANSFORMS_KEY: "transform", PREDICATES_KEY: "predicate"}


def owners(kind: str, names: Iterable[str]) -> Callable[[str], str | None]:
    """Return a function from a key to the longest name that it belongs to."""
    # A configuration may have 100,000 names and keys, so they are not compared pair by pair.
    known = set(names)
    lengths = sorted({name.count(".") + 1 for name in known}, reverse=True)

    def owner(key: str) -> str | None:
        if not key.startswith(f"{kind}."):
            return None
        parts = key.removeprefix(f"{kind}.").split(".")
        found = (".".join(parts[:length]) for length in lengths if length < len(parts))
        return next((name for name in found if name in known), None)

    return owner


class _Declared:
    def __init__(
        self, kind: Kind, names: Sequence[str], keys: Mapping[str, str], problems: list[str]
    ) -> None:
        self._kind = kind
        self._problems = problems
        self._own: dict[str, dict[str, str]] = {}
        owner = owners(kind, names)
        for key, value in keys.items():
            name = owner(key)
            if name is not None and key != f"{kind}.{name}.{_VERSION}":
                self._own.setdefault(name, {})[key.removeprefix(f"{kind}.{name}.")] = value
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            problems.append(f"'{kind}': Duplicate alias provided: {', '.join(twice)}")

    def own_keys(self, name: str) -> dict[str, str]:
        return dict(self._own.get(name, {}))

    def make(self, name: str, keys: dict[str, str]) -> Any:
        key = f"{self._kind}.{name}.type"
        kind = keys.pop("type", "").strip()
        if not kind:
            self._problems.append(f"'{key}' is required and not set")
            return None
        if not is_supported(kind):
            return None  # the verdict on the key is reported
        plugin = KNOWN[self._kind].get(kind)
        try:
            return self._authors(kind, keys) if plugin is None else self._kafkas(name, plugin, keys)
        except ConfigException as error:
            self._problems += [f"'{key}': {problem}" for problem in error.problems]
        return None

    def _kafkas(self, name: str, plugin: Plugin, keys: dict[str, str]) -> Any:
        try:
            return plugin.make(keys)
        except ValidationError as error:
            prefix = f"{self._kind}.{name}."
            self._problems += [_sentence(prefix, plugin, detail) for detail in error.errors()]
        return None

    def _authors(self, kind: str, keys: dict[str, str]) -> Any:
        cls = _load(kind, self._kind)
        method, word = _METHODS[self._kind], _WORDS[self._kind]
        if not (isinstance(cls, type) and callable(getattr(cls, method, None))):
            raise ConfigException(f"{kind} is not a {word}: it must be a class with a method '{method}'")
        try:
            check_methods(cls, method, "configure")
            made = cls()
            configure = getattr(made, "configure", None)
            if configure is not None:
                configure(keys)
        except ConfigException:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigException(f"{kind} cannot be created: {describe(error)}{raised_at(error)}") from error
        if configure is None and keys:
            raise ConfigException(
                f"{kind} has no method 'configure', so it cannot have the keys {', '.join(keys)}"
            )
        return made


class NotImportable(ConfigException): ...


def import_classes(config: Mapping[str, str]) -> None:
    for kind in (TRANSFORMS_KEY, PREDICATES_KEY):
        for name in config.get(kind, "").split(","):
            key = f"{kind}.{name.strip()}.type"
            named = config.get(key, "").strip()
            if ":" not in named:
                continue
            try:
                _load(named, kind)
            except NotImportable as error:
                raise NotImportable(f"'{key}': {error}") from error


def is_supported(kind: str) -> bool:
    return CONNECT_OPTIONS[f"{TRANSFORMS_KEY}.*.type"].of(kind).meaning is not Meaning.UNSUPPORTED


def _load(name: str, kind: str) -> object:
    if ":" not in name:
        raise ConfigException(_unknown(name, kind))
    if not re.fullmatch(r"\w[\w.]*:\w+", name):
        raise ConfigException(f"{name} does not name a class: write it as package.module:Class")
    module, _, attribute = name.partition(":")
    if module == "__main__":
        raise ConfigException(
            f"{name} is in the main module, which executors cannot import: put the class into a module of "
            f"its own"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        raise ConfigException(f"module '{module}' has no '{attribute}'") from None
    except (Exception, SystemExit) as error:  # a script without a main guard may call sys.exit on import
        raise NotImportable(
            f"{name} cannot be imported: {type(error).__name__}: {error}; install its package wherever "
            f"sinksdk runs, on the executors, too, or send it to them (spark-submit --py-files or --archives)"
        ) from error


def _unknown(name: str, kind: str) -> str:
    known = sorted(known for known in KNOWN[kind] if "." not in known)
    of_two = [alias for alias in known if alias.startswith(f"{name.rpartition('.')[2]}$")]
    if of_two:
        return f"Transformation is abstract and cannot be created. Did you mean {' or '.join(of_two)}?"
    if "." in name and not name.startswith((_KAFKA, _CONFLUENT)):
        return (
            f"{name} is a Java class that sinksdk does not implement; it implements only Kafka's own: write "
            f"a Python class that does the same, as package.module:Class, or use 'records.sql'"
        )
    return (
        f"there is no {_WORDS[kind]} '{name}'; built in are {', '.join(known)}; write a class of your own as "
        f"package.module:Class"
    )


def _sentence(prefix: str, plugin: Plugin, detail: Any) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else "type"
    if detail["type"] == "missing":
        return f"'{prefix}{name}' is required and not set"
    if detail["type"] == "extra_forbidden":
        known = keys_of(plugin.keys_class)
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else f"its keys are {', '.join(known) or 'none'}"
        return f"'{prefix}{name}' is not a key of {plugin.cls.__name__}; {hint}"
    error = detail.get("ctx", {}).get("error")
    return f"'{prefix}{name}': {error or detail['msg'][0].lower() + detail['msg'][1:]}"


def keys_of(model: type[Keys]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def read_chain(
    transforms: Sequence[str], predicates: Sequence[str], keys: Mapping[str, str]
) -> tuple[Chain | None, list[str]]:
    problems: list[str] = []
    declared = _Declared(PREDICATES_KEY, predicates, keys, problems)
    ready = {name: declared.make(name, declared.own_keys(name)) for name in predicates}
    mine = _Declared(TRANSFORMS_KEY, transforms, keys, problems)
    steps = []
    for name in transforms:
        own = mine.own_keys(name)
        choice = {key: own.pop(key, "").strip() for key in ("predicate", "negate")}
        problems += _choice_problems(f"{TRANSFORMS_KEY}.{name}.", choice, ready)
        made = mine.make(name, own)
        predicate = ready.get(choice["predicate"])
        steps.append(Step(name, made, predicate, choice["negate"].lower() == "true"))
    return (None if problems or not steps else Chain(steps)), problems


_SHOWN: Final = 20  # predicates that a message names


def _choice_problems(prefix: str, choice: Mapping[str, str], predicates: Collection[str]) -> Iterator[str]:
    named, negate = choice["predicate"], choice["negate"]
    if named and named not in predicates:
        some = ", ".join(islice(predicates, _SHOWN)) + (", …" if len(predicates) > _SHOWN else "")
        declared = f"it declares {some}" if predicates else "it declares none"
        yield f"'{prefix}predicate' is {named}, which is not declared in '{PREDICATES_KEY}': {declared}"
    if negate and not named:
        yield (
            f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a "
            f"predicate to be negated"
        )
    if negate.lower() not in ("", "true", "false"):
        yield f"'{prefix}negate' must be true or false"
