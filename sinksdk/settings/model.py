"""The base of all configuration models: flat dotted names, validated, typed and frozen."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import get_annotations
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sinksdk.compatibility import Converted, Meaning, Option, Rules, Verdict, judge, rule_for
from sinksdk.errors import ConfigException, authors_frames, describe, raised_at
from sinksdk.settings.client_overrides import OVERRIDE_RULES
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.settings.references import references, resolve_references
from sinksdk.settings.texts import Kind, as_text, each_text, from_json, kind_of, named_texts, read
from sinksdk.support.confidential import (
    HIDDEN,
    SECRETS,
    passwords_in,
    sounds_secret,
    without_passwords_in_urls,
)
from sinksdk.support.hooks import check_function


# References (KIP-297) are resolved where the model is created, so that no pickle, store or log contains the
# secrets.
def _split(value: object) -> object:
    return read(value, "list") if isinstance(value, str) else value


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "sequence_str"), "list"),
    **dict.fromkeys(("dict_type", "mapping_type"), "map"),
}

_LIST_TYPES: Final = (list, tuple, set, frozenset, Sequence, AbstractSet)
_ONE_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")

T = TypeVar("T")

NameList = Annotated[tuple[str, ...], BeforeValidator(_split)]


class ConfigModel(BaseModel):
    """Base of every configuration model; the class itself has no fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # docs/configuration.md lists sinksdk's names; only HOOKS may be overridden.
        _refuse_clashes(cls)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        _refuse_other_keys(cls)

    compatibility: ClassVar[Mapping[str, Verdict]] = {}
    """Verdicts on keys of the connector that this one replaces, by name or pattern.

    Keys of Kafka Connect itself have verdicts; one given here precedes it. A configuration with an
    unsupported key does not start.
    """

    other_defaults: ClassVar[Mapping[str, str]] = {}
    """Keys whose default differs from the replaced connector's, each with the effect of the difference.

    ``sinksdk validate`` shows them for a file that names the replaced connector and omits the key.
    """

    # The text that this model was parsed from, references unresolved.
    _written: Mapping[str, Any] | None = PrivateAttr(default=None)
    _is_changed: bool = PrivateAttr(default=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Resolve references and validate.

        Raises ConfigException with all problems; none of them quotes a value.
        """
        config, problems = cls.check(raw)
        SECRETS.add(cls.secrets(raw))  # the configuration will run: no log line may quote its secrets
        if config is None:
            raise ConfigException(problems)
        return config

    @classmethod
    def check(cls, raw: Mapping[str, Any]) -> tuple[Self | None, list[str]]:
        """Return the model, or None and all problems, each a sentence that names its key."""
        resolved, unresolved = cls._resolve(raw)
        options = cls._judged(resolved, unresolved)
        problems = [unresolved[key] for key, verdict in options if key in unresolved and verdict.is_applied]
        refused = {option.key for option in options if not option.is_supported}
        problems += [option.sentence for option in options if option.key in refused]
        applied = cls._supplemented({key: resolved[key] for key, verdict in options if verdict.is_applied})
        wrong = cls._valueless(applied, {key: raw[key] for key in unresolved})
        applied, repeated = cls._gathered({key: text for key, text in applied.items() if key not in wrong})
        problems += repeated
        config = None
        try:
            config = cls._of_text(applied, raw)
            found = [] if wrong else config._problems_found()  # noqa: SLF001 - of this very class
        except ValidationError as error:
            details = [detail for detail in error.errors() if _key_of(detail) not in wrong]
            problems += [_sentence(cls, detail) for detail in details if _key_of(detail) not in refused]
            wrong |= {_key_of(detail) for detail in details} - {""}
            found = []
        except ConfigException as error:
            return None, [*problems, *error.problems]
        if config is None or wrong:
            found = cls._problems_besides(applied, wrong)
        # The verdict on a refused key is reported already.
        problems += [problem for problem in found if _subject(problem) not in refused]
        return (None, problems) if problems else (config, [])

    @classmethod
    def _valueless(cls, applied: Mapping[str, Any], unresolved: Mapping[str, Any]) -> set[str]:
        # Another key may have the same reference.
        texts = {value for value in unresolved.values() if isinstance(value, str)}
        found = {key for key, value in applied.items() if isinstance(value, str) and value in texts}
        found |= unresolved.keys()
        return found | {of for key, (of, _) in cls._parts(applied).items() if key in found}

    @classmethod
    def _of_text(cls, values: Mapping[str, Any], written: Mapping[str, Any]) -> Self:
        config = call_author(f"a validator of {cls.__name__}", cls._validated, values)
        if not isinstance(config, cls):
            raise ConfigException(
                f"a model_validator of {cls.__name__} returned {config!r}: it must return self"
            )
        config._written = dict(written)  # noqa: SLF001 - of this very class
        return config

    @classmethod
    def _validated(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            # Only fields of lists and maps refuse text: the text is split, and the whole configuration
            # validated again.
            parts = dict(_taken_apart(error))
            if not parts:
                raise
        return cls.model_validate({**values, **parts}, by_alias=True, by_name=False)

    @classmethod
    def secrets(cls, raw: Mapping[str, Any]) -> dict[str, str]:
        """Return values that no message may quote, each with its replacement."""
        written = [pair for key, value in raw.items() for pair in cls._texts_of(key, value)]
        found = {}
        for key, text in written:
            found.update(dict.fromkeys(passwords_in(text), HIDDEN))
            if cls._names_secret(key) and not references(text):
                found[text] = HIDDEN
        for reference in {reference for _, text in written for reference in references(text)}:
            try:
                found[resolve_references(reference)] = reference
            except ConfigException:
                continue
        return found

    @classmethod
    @functools.cache  # called at every task's start
    def secret_keys(cls) -> frozenset[str]:
        """Return the names of fields that are secrets, or lists or maps of them."""
        return frozenset(
            field.alias or name
            for name, field in cls.model_fields.items()
            if _holds_secrets(field.annotation)
        )

    @classmethod
    def hides_text(cls, key: str, text: str) -> bool:
        """Whether a key's text must not be shown, because it contains a secret that is no reference."""
        return any(
            cls._names_secret(name) and not _ONE_REFERENCE.fullmatch(one)
            for name, one in cls._texts_of(key, text)
        )

    @classmethod
    def _names_secret(cls, key: str) -> bool:
        secret = cls.secret_keys()
        return key in secret or sounds_secret(key) or any(key.startswith(f"{one}.") for one in secret)

    @classmethod
    def _texts_of(cls, key: str, value: object) -> Iterator[tuple[str, str]]:
        kind = cls.multi_valued().get(key)
        if isinstance(value, str) and kind is not None:
            text, value = value, read(value, kind)
            if kind == "map" and value == text:
                key = f"{key}.{text}"  # the text is not a map: any part of it may be the name of a secret
        return named_texts(key, value)

    @classmethod
    @functools.cache
    def multi_valued(cls) -> Mapping[str, Kind]:
        """Return the dotted names of the fields with several values."""
        kinds: Mapping[str, Kind] = {"list": "list", "map": "map"}
        types = {key: _type_name(cls.model_fields[name].annotation) for key, name in cls.keys().items()}
        return {key: kinds[kind] for key, kind in types.items() if kind in kinds}

    @classmethod
    def _parts(cls, values: Iterable[str]) -> dict[str, tuple[str, str]]:
        own = cls.keys()
        maps = sorted(
            (key for key, kind in cls.multi_valued().items() if kind == "map"), key=len, reverse=True
        )
        found = {}
        for key in values:
            of = next((one for one in maps if key.startswith(f"{one}.") and len(key) > len(one) + 1), None)
            if of is not None and key not in own:
                found[key] = of, key.removeprefix(f"{of}.")
        return found

    @classmethod
    def _known(cls, values: Mapping[str, Any]) -> set[str]:
        return {*cls.keys(), *cls._parts(values)}

    @classmethod
    def _gathered(cls, applied: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        problems = []
        gathered: dict[str, dict[str, Any]] = {}
        for key, (of, entry) in cls._parts(applied).items():
            if of not in gathered:
                whole = applied.get(of, {})
                entries = read(whole, "map") if isinstance(whole, str) else whole
                if not isinstance(entries, Mapping):
                    continue  # validation reports this error
                gathered[of] = dict(entries)
            if entry in gathered[of]:
                problems.append(f"'{key}' is also in '{of}': keep one of them")
            gathered[of][entry] = applied[key]
        return {**applied, **gathered}, problems

    @classmethod
    def _resolve(cls, raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        problems: dict[str, str] = {}
        several = cls.multi_valued()

        def replaced(key: str, value: object) -> object:
            kind = several.get(key)
            if isinstance(value, str) and kind is not None:
                # Parsed before references are resolved, because a referenced text may break the JSON.
                value = from_json(value, kind)
            if not isinstance(value, str) and (kind is None or kind_of(value) is None):
                return value
            try:
                return each_text(value, resolve_references)
            except ConfigException as error:
                problems[key] = f"'{key}': {error}"
                return value

        return {key: replaced(key, value) for key, value in raw.items()}, problems

    @classmethod
    def judge(cls, raw: Mapping[str, Any]) -> list[Option]:
        """Return the verdict on each key of a configuration, in its order."""
        return cls._judged(*cls._resolve(raw))

    @classmethod
    def _judged(cls, resolved: Mapping[str, Any], unresolved: Collection[str]) -> list[Option]:
        return judge(resolved, (OVERRIDE_RULES, *cls._rules_for(resolved)), cls._known(resolved), unresolved)

    @classmethod
    def _rules(cls) -> tuple[Rules, ...]:
        return cls.compatibility, CONNECT_OPTIONS

    @classmethod
    def _rules_for(cls, _values: Mapping[str, Any], /) -> tuple[Rules, ...]:
        return cls._rules()

    @classmethod
    def translated(cls, raw: Mapping[str, str], /) -> Converted:
        """Translate a configuration of another connector to the keys of this one.

        A hook for ``sinksdk convert``.
        """
        return Converted(dict(raw))

    @classmethod
    def converted(cls, raw: Mapping[str, str]) -> Converted:
        """Return a configuration without keys that have no effect, with notes on the others."""
        made = cls.translated(raw)
        for option in cls.judge(made.config):
            meaning = option.verdict.meaning
            if meaning is Meaning.UNSUPPORTED:
                if not any(problem.startswith(f"'{option.key}'") for problem in made.problems):
                    # An unsupported key stays: without it the result would start, and behave differently.
                    made.problems.append(option.sentence)
            elif meaning not in (Meaning.SAME, Meaning.OWN):
                made.notes.append(option.sentence)
            if meaning in (Meaning.IGNORED, Meaning.UNKNOWN):
                del made.config[option.key]
        return made

    def warnings(self) -> list[str]:
        """Return sentences on settings that are valid but perhaps unintended. No I/O.

        A subclass adds its own to those of ``super()``.
        """
        return []

    @classmethod
    def other_defaults_for(cls, _values: Mapping[str, Any], /) -> Mapping[str, str]:
        """Return :attr:`other_defaults` of one configuration, whose keys may change defaults of others."""
        return cls.other_defaults

    @classmethod
    def _supplemented(cls, applied: dict[str, Any]) -> dict[str, Any]:
        return applied

    @classmethod
    def _common(cls) -> Sequence[type[BaseModel]]:
        return ()

    @classmethod
    def _problems_besides(cls, resolved: Mapping[str, Any], wrong: Collection[str]) -> list[str]:
        rest = {key: value for key, value in resolved.items() if key not in wrong}
        for name, field in cls.model_fields.items():
            if field.is_required():
                rest.setdefault(field.alias or name, "1")  # valid as a text and as a number
        try:
            found = cls._of_text(rest, rest)._problems_found()  # noqa: SLF001 - of this very class
        except (ValidationError, ConfigException):
            return []
        return [problem for problem in found if not any(f"'{key}'" in problem for key in wrong)]

    def _problems_found(self) -> list[str]:
        return [
            *self._former_problems(),
            *sentences_of(f"{type(self).__name__}.problems()", self.problems),
        ]

    def _former_problems(self) -> Iterator[str]:
        for name, former in _declared_again(type(self)).items():
            try:
                former.validate_python(getattr(self, name))
            except ValidationError as error:
                for detail in error.errors():
                    yield _sentence(type(self), {**detail, "loc": (name, *detail["loc"])})

    def problems(self) -> list[str]:
        """Return problems between fields; a subclass adds its own to those of ``super()``. No I/O."""
        return []

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # No passwords, and references as written, because they may stand for secrets.
        keys = {field: key for key, field in self.keys().items()}
        for name, value in super().__repr_args__():
            written = (self._written or {}).get(keys.get(name or "", ""))
            shown = written if isinstance(written, str) and references(written) else value
            yield name, without_passwords_in_urls(shown) if isinstance(shown, str) else shown

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with some fields replaced. A changed copy cannot be pickled."""
        copy = super().model_copy(update=update, deep=deep)
        copy._is_changed = self._is_changed or bool(update)  # noqa: SLF001 - of this very class
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        if self._written is None or self._is_changed:
            raise TypeError(
                f"this {type(self).__name__} cannot be pickled: it was created or changed in Python, and "
                f"secrets must not travel; send the configuration's text and parse it where it is needed"
            )
        # A pickle contains the references; unpickling resolves them again.
        return type(self).parse, (dict(self._written),)

    def keep_secrets(self) -> None:
        """Hide the secrets of this configuration in this process: in messages, traces and log lines."""
        SECRETS.add(self.secrets(self._written or {}))

    def overrides(self, prefix: str) -> dict[str, str]:
        """Return the keys with a prefix, without it, references resolved: properties for Kafka clients."""
        written = self._written or {}
        return {
            key.removeprefix(prefix): resolve_references(str(value))
            for key, value in written.items()
            if key.startswith(prefix)
        }

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Return the dotted name of each key with the field that contains it."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def reference(cls) -> Iterator[ConfigKey]:
        """Yield every key that has an effect, the connector's own first."""
        rules = cls._rules()
        common = dict.fromkeys(name for part in cls._common() for name in part.model_fields)
        places = {name: place for place, name in enumerate(common, 1)}
        ordered = sorted(cls.model_fields.items(), key=lambda item: places.get(item[0], 0))
        for name, field in ordered:
            rule = rule_for(field.alias or name, *rules)
            if field.exclude or (rule is not None and not rule.is_applied):
                continue
            yield ConfigKey.of_field(name, field)

    @classmethod
    def reference_for(cls, _values: Mapping[str, Any], /) -> Iterator[ConfigKey]:
        """Yield the keys as :meth:`reference` does for one configuration, which may add further keys."""
        return cls.reference()


# An author's model may override these names.
HOOKS: Final = frozenset(
    {"parse", "problems", "warnings", "translated", "compatibility", "other_defaults", "other_defaults_for"}
)


def reserved_names(cls: type[ConfigModel]) -> dict[str, type]:
    # Fields and pydantic's names are left out.
    fields = getattr(cls, "__pydantic_fields__", {})
    return {
        name: owner
        for name, owner in _own_names(cls).items()
        if not name.startswith("_") and name not in fields
    }


def _own_names(cls: type[ConfigModel]) -> dict[str, type]:
    owners = [owner for owner in cls.__mro__ if _is_own(owner)]
    return {
        name: owner
        for owner in reversed(owners)
        for name in (*vars(owner), *get_annotations(owner))
        if not name.startswith("__") and name not in _PYDANTICS
    }


_PYDANTICS: Final = frozenset(dir(BaseModel))
# Names that no field can have. Those that pydantic deprecates (schema, json, copy) are free.
_MODELS: Final = frozenset(name for name in _PYDANTICS if name.startswith("model_"))
# Names that no method can have either, because sinksdk or pydantic calls them.
_CALLED: Final = frozenset(
    {"model_copy", "model_fields", "model_rebuild", "model_validate", "_setattr_handler"}
)


def _is_own(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "sinksdk"


def _own_base(cls: type[ConfigModel]) -> type[ConfigModel]:
    return next(owner for owner in cls.__mro__ if _is_own(owner) and issubclass(owner, ConfigModel))


def _declares(owner: type, name: str) -> bool:
    return name in vars(owner) or name in get_annotations(owner)


def _refuse_clashes(cls: type[ConfigModel]) -> None:
    if _is_own(cls):
        return
    base = _own_base(cls)
    for name, owner in {**dict.fromkeys(_MODELS | _CALLED, BaseModel), **_own_names(base)}.items():
        mine = next((one for one in cls.__mro__ if _declares(one, name)), owner)
        if _is_own(mine) or mine is BaseModel:
            continue
        annotations = get_annotations(mine)
        is_field = name in annotations and not _is_class_variable(annotations[name])
        if is_field and name in base.model_fields:
            continue  # _refuse_other_keys checks the field once its alias is known
        if not is_field and name in _MODELS - _CALLED:
            continue
        if is_field or name not in HOOKS:
            what = "field" if is_field else "method"
            raise TypeError(
                f"{mine.__qualname__}.{name} would replace {owner.__qualname__}.{name}, which "
                f"{'pydantic' if owner is BaseModel else 'sinksdk'} "
                f"{'reads' if name in base.model_fields else 'calls'}: give the {what} another name"
                f"{_ALIAS if is_field else ''}"
            )
        check_function(mine.__qualname__, name, getattr(cls, name))


_ALIAS: Final = "; its key, the alias, may stay: `other_name: … = Field(alias=…)`"


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return re.match(r"(\w+\.)?ClassVar\b", annotation) is not None
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _refuse_other_keys(cls: type[ConfigModel]) -> None:
    # A field may be declared again under its key, with another default or a narrower type.
    if _is_own(cls):
        return
    base = _own_base(cls)
    for name, field in cls.model_fields.items():
        mine = next(owner for owner in cls.__mro__ if _declares(owner, name))
        if _is_own(mine):
            mine = cls  # the alias_generator of ``cls`` renamed an inherited field
        what = f"{mine.__qualname__}.{name}"
        if field.validation_alias not in (None, field.alias):
            raise TypeError(
                f"{what} has a validation_alias, and keys are read by their alias: write `Field(alias=…)`"
            )
        former = base.model_fields.get(name)
        if former is None:
            continue
        theirs = next(owner for owner in base.__mro__ if name in get_annotations(owner))
        key, former_key = field.alias or name, former.alias or name
        if key != former_key:
            raise TypeError(
                f"{what} has the key {key!r} and would replace {theirs.__qualname__}.{name}, the key "
                f"{former_key!r}, which sinksdk reads: give the field another name{_ALIAS}. To give "
                f"{former_key!r} another default, keep its key: `Field(…, alias={former_key!r})`"
            )
        if not _is_narrower(field.annotation, former.annotation):
            raise TypeError(
                f"{what} is of type {_code_of(field.annotation)}, and sinksdk reads "
                f"{theirs.__qualname__}.{name} as {_code_of(former.annotation)}: keep that type or use a "
                f"narrower one, or give the field another name and key"
            )


@functools.cache
def _declared_again(cls: type[ConfigModel]) -> Mapping[str, TypeAdapter[Any]]:
    kinds: dict[str, Any] = {}
    for name, former in _own_base(cls).model_fields.items():
        # Pydantic lets a new declaration replace the bounds, but sinksdk's code relies on them. An author's
        # bound of the same kind replaces the former one.
        stated = {type(bound) for bound in cls.model_fields[name].metadata}
        if left_out := [bound for bound in former.metadata if type(bound) not in stated]:
            kinds[name] = Annotated[former.annotation, *left_out]
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


# The classes of the annotations are compared, not those of their items.
def _is_narrower(annotation: Any, than: Any) -> bool:
    wide = _classes(than)
    wide |= {int} if float in wide else set()
    return all(any(issubclass(one, other) for other in wide) for one in _classes(annotation))


def _classes(annotation: Any) -> set[type]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _classes(arguments[0])
    if origin is Literal:
        return {type(choice) for choice in arguments}
    if origin in (Union, UnionType):
        return {found for argument in arguments for found in _classes(argument)}
    if annotation is Any:
        return {object}
    kind = origin or annotation
    return {kind} if isinstance(kind, type) else set()  # empty for a name that cannot be resolved yet


def _code_of(annotation: Any) -> str:
    is_plain = isinstance(annotation, type) and not get_args(annotation)
    return annotation.__name__ if is_plain else str(annotation)


def call_author(where: str, function: Callable[..., T], *arguments: object) -> T:
    try:
        return function(*arguments)
    except (ConfigException, ValidationError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigException(f"{where} failed: {describe(error)}{raised_at(error)}") from error


def sentences_of(where: str, hook: Callable[..., object], *arguments: object) -> list[str]:
    returned = call_author(where, hook, *arguments)
    if isinstance(returned, str):  # a text is one sentence, not a list of its letters
        return [returned] if returned else []
    found: list[Any] = call_author(where, list, returned) if isinstance(returned, Iterable) else [returned]
    if all(isinstance(sentence, str) for sentence in found):
        return found
    raise ConfigException(f"{where} returned {returned!r}; it must return a list of sentences")


def written(config: ConfigModel) -> dict[str, str]:
    # None: the configuration was not parsed from text.
    texts = config._written or {}  # noqa: SLF001 - of this module
    return {key: as_text(value) for key, value in texts.items() if value is not None}


class ConfigKey(BaseModel):
    name: str
    type: str
    default: str
    required: bool
    meaning: str
    group: str | None = Field(default=None, exclude=True)

    @classmethod
    def of_field(cls, name: str, field: FieldInfo) -> ConfigKey:
        return cls(
            name=field.alias or name,
            type=_type_name(field.annotation),
            default="" if field.default is PydanticUndefined else _text(field.default),
            required=field.is_required(),
            meaning=field.description or "",
        )


def _taken_apart(error: ValidationError) -> Iterator[tuple[str, Any]]:
    for detail in error.errors():
        text, kind = detail["input"], _KINDS.get(detail["type"])
        if len(detail["loc"]) != 1 or kind is None or not isinstance(text, str):
            continue
        items = read(text, kind)
        if not isinstance(items, str):
            yield str(detail["loc"][0]), items


def _subject(problem: str) -> str:
    return problem[1:].partition("'")[0] if problem.startswith("'") else ""


def _key_of(detail: Any) -> str:
    return str(detail["loc"][0]) if detail["loc"] else ""


def _message(detail: Any) -> str:
    # Pydantic puts "Value error, " before the author's own sentence.
    error = detail.get("ctx", {}).get("error")
    if not isinstance(error, Exception):
        return str(detail["msg"])
    frames = authors_frames(error)
    by = f" by {frames[0][0]}" if frames else ""
    return str(error) or f"refused without a reason{by}: let it raise ValueError with a sentence"


def _sentence(cls: type[ConfigModel], detail: Any) -> str:
    path: Sequence[Any] = detail["loc"]
    if not path:  # a model_validator raised an error about several fields
        message = _message(detail)
        return message if str(detail.get("ctx", {}).get("error")) else f"the configuration is {message}"
    name = str(path[0])
    field = cls.model_fields.get(name)
    key = (field.alias if field else None) or name
    message = _message(detail)
    if detail["type"] == "missing":
        return f"'{key}' is required and not set"
    if _KINDS.get(detail["type"]) == "map" and len(path) == 1:
        return f"'{key}': must be pairs of key:value, separated by commas, each key once; or a JSON object"
    # The list or the map has too few or too many items.
    if detail["type"] in ("too_short", "too_long") and len(path) == 1:
        bound = "at least" if detail["type"] == "too_short" else "at most"
        count = detail["ctx"]["min_length" if detail["type"] == "too_short" else "max_length"]
        return f"'{key}': must have {bound} {count} item{'' if count == 1 else 's'}"
    if len(path) > 1 and key in cls.multi_valued():
        part = f"item {path[1] + 1}" if isinstance(path[1], int) else f"'{path[1]}'"
        return f"'{key}': {part}: {message[0].lower()}{message[1:]}"
    return f"'{key}': {message[0].lower()}{message[1:]}"


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation) if choice != "")
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    kind = get_origin(annotation) or annotation
    if kind in _LIST_TYPES:
        return "list"
    if kind in (dict, Mapping):
        return "map"
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if arguments:
        return _type_name(arguments[0])
    names = {int: "integer", float: "number", bool: "boolean", str: "text", SecretStr: "secret"}
    return names.get(annotation, "text")


def _holds_secrets(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_holds_secrets, get_args(annotation)))


def _text(default: Any) -> str:
    return "" if default is None else as_text(default)
