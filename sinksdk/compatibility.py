"""How sinksdk treats keys of Kafka Connect and of other connectors: a verdict for each, with the reason.

A connector that replaces one of Kafka Connect's declares this as data, in
:attr:`~sinksdk.ConnectorConfig.compatibility`::

    compatibility = {
        "flush.size": Verdict.same(),
        "format.class": Verdict.unsupported("only Avro is written").when({"AvroFormat": Verdict.same()}),
        "parquet.*": Verdict.ignored("there are no Parquet files"),
    }

``sinksdk validate`` shows the verdicts; a configuration with an unsupported key does not start.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple


class Meaning(StrEnum):
    """What a key means here, compared with what it means in Kafka Connect."""

    UNSUPPORTED = "unsupported"
    """It would change the data at the destination and is not supported: refused, with what to do."""
    DIFFERS = "differs"
    """It has an effect, but not exactly as in Kafka Connect; the reason says how."""
    IGNORED = "ignored"
    """It has no effect here, and why. It may stay."""
    UNKNOWN = "unknown"
    """Unknown: it has no effect. Perhaps it is misspelt."""
    SAME = "same"
    """The same meaning as in Kafka Connect."""
    OWN = "own"
    """A key of this connector or of sinksdk, which Kafka Connect does not have."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sinksdk treats one key.

    Args:
        meaning: compared with Kafka Connect.
        why: the reason, the difference, or what to do instead; a clause without a full stop.
        cases: verdicts for certain values, by pattern (``*`` stands for anything). A pattern is tried
            on the whole value and on what follows its last dot, so that ``AvroFormat`` finds the class
            in any package.
    """

    meaning: Meaning
    why: str = ""
    cases: Mapping[str, Verdict] = field(default_factory=dict)

    @classmethod
    def same(cls, remark: str = "") -> Verdict:
        """The same meaning as in Kafka Connect."""
        return cls(Meaning.SAME, remark)

    @classmethod
    def differs(cls, how: str) -> Verdict:
        """It has an effect, with a difference."""
        return cls(Meaning.DIFFERS, how)

    @classmethod
    def ignored(cls, why: str) -> Verdict:
        """It has no effect, and needs none."""
        return cls(Meaning.IGNORED, why)

    @classmethod
    def unsupported(cls, instead: str) -> Verdict:
        """It is refused: the data at the destination would not be what the configuration says."""
        return cls(Meaning.UNSUPPORTED, instead)

    @property
    def is_applied(self) -> bool:
        """Whether the value has an effect, so that it must be a good one."""
        return self.meaning not in (Meaning.IGNORED, Meaning.UNKNOWN)

    @property
    def is_startable(self) -> bool:
        """Whether some value of the key leaves a configuration startable."""
        return self.meaning is not Meaning.UNSUPPORTED or any(
            case.is_startable for case in self.cases.values()
        )

    def when(self, cases: Mapping[str, Verdict]) -> Verdict:
        """The same, with other verdicts for certain values; the first pattern that fits counts."""
        return dataclasses.replace(self, cases={**self.cases, **cases})

    def of(self, value: str) -> Verdict:
        """The verdict for a value. An empty value requests nothing, so it is never unsupported.

        A refused one that is nearly a value that has another verdict names that.
        """
        value = value.strip()
        for pattern, verdict in self.cases.items():
            if fnmatchcase(value, pattern) or fnmatchcase(value.rpartition(".")[2], pattern):
                return verdict
        if not value and self.meaning is Meaning.UNSUPPORTED:
            return Verdict.ignored("it is empty, which asks for nothing")
        if self.meaning is Meaning.UNSUPPORTED and (nearest := self._nearest(value)):
            return dataclasses.replace(self, why=f"{self.why}; did you mean '{nearest}'?")
        return self

    def _nearest(self, value: str) -> str:
        """The value of which this one may be a misspelling, and that can start."""
        names = {
            pattern.lower(): pattern
            for pattern, verdict in self.cases.items()
            if not set(pattern) & set("*?[") and verdict.meaning is not Meaning.UNSUPPORTED
        }
        found = difflib.get_close_matches(value.rpartition(".")[2].lower(), names, n=1, cutoff=_NEAR)
        return names[found[0]] if found else ""


_NEAR: Final = 0.88
"""How alike a misspelt value is, by difflib: a class of one's own is often called as another, and more."""

_SAID: Final[Mapping[Meaning, str]] = {
    Meaning.UNSUPPORTED: "is unsupported",
    Meaning.DIFFERS: "is applied with a difference",
    Meaning.IGNORED: "has no effect here",
    Meaning.UNKNOWN: "is not known to this connector and has no effect",
    Meaning.SAME: "means the same here",
    Meaning.OWN: "is this connector's own",
}


class Option(NamedTuple):
    """One key of a configuration, and its verdict."""

    key: str
    verdict: Verdict

    @property
    def is_supported(self) -> bool:
        """Whether it leaves the configuration startable."""
        return self.verdict.meaning is not Meaning.UNSUPPORTED

    @property
    def sentence(self) -> str:
        """The verdict in one line, for an operator."""
        said, why = _SAID[self.verdict.meaning], self.verdict.why
        if not why:
            return f"'{self.key}' {said}"
        separator = ";" if self.verdict.meaning is Meaning.UNKNOWN else ":"
        return f"'{self.key}' {said}{separator} {why}"


@dataclass
class Converted:
    """A configuration that was written for another connector, on its way to the keys here.

    Args:
        config: keys and texts, references as they were written.
        notes: what has another name, was left out or differs, each a sentence without a full stop.
        problems: what has no counterpart, so that the data at the destination would not be the same.
    """

    config: dict[str, str]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Rules = Mapping[str, Verdict]
"""Verdicts by key, or by pattern as in ``consumer.override.*``."""


def rule_for(key: str, *books: Rules) -> Verdict | None:
    """The verdict on a key in the first book that has one: its own, else the longest fitting pattern's."""
    return next(filter(None, (_rule_in(book, key) for book in books)), None)


def _rule_in(rules: Rules, key: str) -> Verdict | None:
    if key in rules:
        return rules[key]
    fitting = [pattern for pattern in rules if "*" in pattern and fnmatchcase(key, pattern)]
    return rules[max(fitting, key=len)] if fitting else None


_SIDES: Final = ("key.converter.", "value.converter.", "header.converter.")


def _side(key: str) -> str:
    """Return the prefix of a converter's key: a key of the other converter is no misspelling of it."""
    return next((side for side in _SIDES if key.startswith(side)), "")


def judge(
    values: Mapping[str, object],
    books: Sequence[Rules],
    known: Iterable[str],
    unresolved: Collection[str] = (),
) -> list[Option]:
    """The verdict on each key, in the order of ``values``.

    Args:
        values: keys with their values, references replaced: a verdict may depend on them.
        books: the connector's rules, then those of all connectors.
        known: keys that the connector has; those without a rule are its own.
        unresolved: keys whose reference cannot be replaced: no verdict depends on its text.
    """
    known = set(known)
    nearest = _Nearest(known, books)

    def verdict(key: str, value: object) -> Verdict:
        rule = rule_for(key, *books)
        if rule is not None:
            return Verdict.same() if rule.cases and key in unresolved else rule.of(str(value))
        if key in known:
            return Verdict(Meaning.OWN)
        near = nearest.to(key)
        return Verdict(Meaning.UNKNOWN, f"did you mean '{near}'?" if near else "")

    return [Option(key, verdict(key, value)) for key, value in values.items()]


class _Nearest:
    """Finds the key of which an unknown one may be a misspelling, for the first unknown ones."""

    def __init__(self, known: Iterable[str], books: Sequence[Rules]) -> None:
        self._known = known
        self._books = books
        self._left = _SUGGESTIONS

    @functools.cached_property
    def _names(self) -> Mapping[str, Sequence[str]]:
        # Never suggest a key that would be refused as well.
        ruled = {name for book in self._books for name, found in book.items() if found.is_startable}
        names: dict[str, list[str]] = {}
        for name in sorted({*self._known, *ruled}):
            if "*" not in name:
                names.setdefault(_side(name), []).append(name)
        return names

    def to(self, key: str) -> str:
        """The key, or none: comparing takes 1 ms, and a request may have 100,000 unknown ones."""
        if not self._left:
            return ""
        self._left -= 1
        found = difflib.get_close_matches(key, self._names.get(_side(key), ()), n=1, cutoff=0.75)
        return found[0] if found else ""


_SUGGESTIONS: Final = 20  # of one configuration: more unknown keys are no misspellings
