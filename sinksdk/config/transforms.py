"""Connect's chain of transforms in a configuration: its keys, and problems with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field

from sinksdk.compatibility import Meaning, Rules, Verdict
from sinksdk.settings.model import ConfigKey, NameList
from sinksdk.transforms.base import BuiltIn, OfOnePart
from sinksdk.transforms.chain import Chain
from sinksdk.transforms.fields import ValueToKey
from sinksdk.transforms.plugins import KNOWN, PREDICATES_KEY, TRANSFORMS_KEY, is_supported, owners, read_chain

_WITH_FIELDS: Final = ("json", "avro")
# Keys that matter only if single records are read.
_RECORD_KEYS: Final = ("key.converter", "value.converter", "errors.", "producer.override.")
_STEP: Final = "The predicate that chooses its records; all, if not set."


class ChainSettings(BaseModel):
    transforms: NameList = Field(
        default=(),
        description="Names of transforms, in the order in which they are applied after the converters. Each "
        "has a `transforms.<name>.type`, keys of its own, and optionally `transforms.<name>.predicate` and "
        "`transforms.<name>.negate`.",
    )
    predicates: NameList = Field(
        default=(),
        description="Names of predicates that choose records for transforms. Each has a "
        "`predicates.<name>.type` and keys of its own.",
    )

    def read_chain(
        self, keys: Mapping[str, str], converters: Mapping[str, str]
    ) -> tuple[Chain | None, list[str]]:
        """Return the chain, None if there is none, and its problems."""
        chain, problems = read_chain(self.transforms, self.predicates, keys)
        return chain, problems or list(_without_fields(chain, converters))


def _without_fields(chain: Chain | None, converters: Mapping[str, str]) -> Iterator[str]:
    # A transform of fields would fail at every record if the converter returns no fields.
    bare = {part: kind for part, kind in converters.items() if kind not in _WITH_FIELDS}
    for step in chain.steps if chain else ():
        made = step.transformation
        if not isinstance(made, BuiltIn):
            return  # an author's transform may create fields
        if made.part in bare and made.needs_fields:
            part = made.part
            yield (
                f"'{TRANSFORMS_KEY}.{step.name}.type' needs fields, and '{part}.converter' is "
                f"{bare[part]}, which has none: set '{part}.converter' to json or avro"
            )
            del bare[part]
        if isinstance(made, ValueToKey | OfOnePart):
            bare.pop("key" if isinstance(made, ValueToKey) else made.part, None)


def rules_with_chain(values: Mapping[str, object], own: Rules, *others: Rules) -> tuple[Rules, ...]:
    owner = {kind: owners(kind, _names(values, kind)) for kind in KNOWN}
    unused = {key: verdict for key in values if (verdict := _verdict(key, values, owner)) is not None}
    if not _names(values, TRANSFORMS_KEY):
        return unused, own, *others
    # Converters and the handling of bad records matter to every connector that has a chain.
    applied = {
        key: verdict
        for key, verdict in own.items()
        if verdict.meaning is not Meaning.IGNORED or not key.startswith(_RECORD_KEYS)
    }
    return unused, applied, *others


def _verdict(
    key: str, values: Mapping[str, object], owner: Mapping[str, Callable[[str], str | None]]
) -> Verdict | None:
    kind = key.partition(".")[0]
    if kind not in KNOWN or key == kind:
        return None
    name = owner[kind](key)
    if name is None:
        return Verdict.ignored(f"'{kind}' does not list the {kind[:-1]} that it configures")
    type_key = f"{kind}.{name}.type"
    is_refused = not is_supported(str(values.get(type_key, "")))
    # The verdict on the type of a refused transform says what to do about all of its keys.
    return Verdict.ignored(f"it configures '{type_key}'") if is_refused and key != type_key else None


def _names(values: Mapping[str, object], kind: str) -> list[str]:
    return [name for name in (part.strip() for part in str(values.get(kind, "")).split(",")) if name]


def chain_reference(values: Mapping[str, Any]) -> Iterator[ConfigKey]:
    for kind in (TRANSFORMS_KEY, PREDICATES_KEY):
        for name in _names(values, kind):
            for key in _step_reference(kind, f"{kind}.{name}.", str(values.get(f"{kind}.{name}.type", ""))):
                yield key.model_copy(update={"group": f"{kind.capitalize()}: {name}"})


def _step_reference(kind: str, prefix: str, plugin: str) -> Sequence[ConfigKey]:
    own = ConfigKey(name=f"{prefix}type", type="class", default="", required=True, meaning=f"One of {kind}.")
    choice = [
        ConfigKey(name=f"{prefix}predicate", type="text", default="", required=False, meaning=_STEP),
        ConfigKey(
            name=f"{prefix}negate",
            type="boolean",
            default="false",
            required=False,
            meaning="Apply it to the records that the predicate does not choose.",
        ),
    ]
    known = KNOWN[kind].get(plugin.strip())
    fields = known.keys_class.model_fields.items() if known else ()
    keys = [ConfigKey.of_field(name, field) for name, field in fields]
    return [
        own,
        *(choice if kind == TRANSFORMS_KEY else ()),
        *(key.model_copy(update={"name": prefix + key.name}) for key in keys),
    ]
