"""Verdicts: how sinksdk treats keys of Kafka Connect and of other connectors, each with the reason.

A connector that replaces one of Kafka Connect's declares them as data, in
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
    """Meaning of a key in sinksdk, compared with Kafka Connect."""

    UNSUPPORTED = "unsupported"
    """The key is refused: it is not supported, and ignoring it would change the data at the destination."""
    DIFFERS = "differs"
    """The key has an effect, but not exactly as in Kafka Connect; the reason states the difference."""
    IGNORED = "ignored"
    """The key has no effect here, for the given reason. It may stay in the configuration."""
    UNKNOWN = "unknown"
    """The key is unknown, perhaps misspelt, and has no effect."""
    SAME = "same"
    """The key means the same as in Kafka Connect."""
    OWN = "own"
    """A key of this connector or of sinksdk that Kafka Connect does not have."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sinksdk treats one key.

    Args:
        meaning: the meaning of the key, compared with Kafka Connect.
        why: the reason, the difference, or what to do instead; a clause without a full stop.
        cases: verdicts for certain values, by pattern (``*`` stands for anything). A pattern is compared
            with the whole value and with the part after its last dot, so that ``AvroFormat`` matches the
            class in any package.
    """

    meaning: Meaning
    why: str = ""
    cases: Mapping[str, Verdict] = field(default_factory=dict)

    @classmethod
    def same(cls, remark: str = "") -> Verdict:
        """Return a verdict: the key means the same as in Kafka Connect."""
        return cls(Meaning.SAME, remark)

    @classmethod
    def differs(cls, how: str) -> Verdict:
        """Return a verdict: the key has an effect, with a difference."""
        return cls(Meaning.DIFFERS, how)

    @classmethod
    def ignored(cls, why: str) -> Verdict:
        """Return a verdict: the key has no effect, and needs none."""
        return cls(Meaning.IGNORED, why)

    @classmethod
    def unsupported(cls, instead: str) -> Verdict:
        """Return a verdict: the key is refused, because it would change the data at the destination."""
        return cls(Meaning.UNSUPPORTED, instead)

    @property
    def is_applied(self) -> bool:
        """Whether the value has an effect, and so must be valid."""
        return self.meaning not in (Meaning.IGNORED, Meaning.UNKNOWN)

    @property
    def is_startable(self) -> bool:
        """Whether some value of the key allows a configuration to start."""
        return self.meaning is not Meaning.UNSUPPORTED or any(
            case.is_startable for case in self.cases.values()
        )

    def when(self, cases: Mapping[str, Verdict]) -> Verdict:
        """Return this verdict with others for certain values; the first pattern that matches counts."""
        return dataclasses.replace(self, cases={**self.cases, **cases})

    def of(self, value: str) -> Verdict:
        """Return the verdict for a value.

        An empty value is never unsupported. The verdict on an unsupported value that resembles a supported
        one suggests that.
        """
        value = value.strip()
        for pattern, verdict in self.cases.items():
            if fnmatchcase(value, pattern) or fnmatchcase(value.rpartition(".")[2], pattern):
                return verdict
        if not value and self.meaning is Meaning.UNSUPPORTED:
            return Verdict.ignored("its value is empty")
        if self.meaning is Meaning.UNSUPPORTED and (nearest := self._nearest(value)):
            return dataclasses.replace(self, why=f"{self.why}; did you mean '{nearest}'?")
        return self

    def _nearest(self, value: str) -> str:
        names = {
            pattern.lower(): pattern
            for pattern, verdict in self.cases.items()
            if not set(pattern) & set("*?[") and verdict.meaning is not Meaning.UNSUPPORTED
        }
        found = difflib.get_close_matches(value.rpartition(".")[2].lower(), names, n=1, cutoff=_NEAR)
        return names[found[0]] if found else ""


_NEAR: Final = 0.88
"""Least similarity (by difflib) of a misspelling; with a lower one, an author's class would count as one."""

_EFFECTS: Final[Mapping[Meaning, str]] = {
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
        """Whether the configuration can start with this key."""
        return self.verdict.meaning is not Meaning.UNSUPPORTED

    @property
    def sentence(self) -> str:
        """The verdict in one line, for an operator."""
        effect, why = _EFFECTS[self.verdict.meaning], self.verdict.why
        if not why:
            return f"'{self.key}' {effect}"
        separator = ";" if self.verdict.meaning is Meaning.UNKNOWN else ":"
        return f"'{self.key}' {effect}{separator} {why}"


@dataclass
class Converted:
    """A configuration written for another connector, while it is converted to the keys of this one.

    Args:
        config: keys and texts, references as written.
        notes: keys that were renamed, left out or that differ, each a sentence without a full stop.
        problems: keys without a counterpart, without which the data at the destination would be different.
    """

    config: dict[str, str]
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Rules = Mapping[str, Verdict]
"""Verdicts by key, or by pattern as in ``consumer.override.*``."""


def rule_for(key: str, *books: Rules) -> Verdict | None:
    """Return the verdict on a key from the first of the rules in ``books`` that have one.

    Among the rules of one book, a verdict on the key itself precedes those on patterns, and the longest
    pattern precedes the others.
    """
    return next(filter(None, (_rule_in(book, key) for book in books)), None)


def _rule_in(rules: Rules, key: str) -> Verdict | None:
    if key in rules:
        return rules[key]
    fitting = [pattern for pattern in rules if "*" in pattern and fnmatchcase(key, pattern)]
    return rules[max(fitting, key=len)] if fitting else None


_SIDES: Final = ("key.converter.", "value.converter.", "header.converter.")


def _side(key: str) -> str:
    # A key of the other converter is not a misspelling of this one.
    return next((side for side in _SIDES if key.startswith(side)), "")


def judge(
    values: Mapping[str, object],
    books: Sequence[Rules],
    known: Iterable[str],
    unresolved: Collection[str] = (),
) -> list[Option]:
    """Return the verdict on each key, in the order of ``values``.

    Args:
        values: keys with their values, references resolved: a verdict may depend on them.
        books: the connector's rules, then those of all connectors.
        known: keys that the connector has; those without a rule are its own.
        unresolved: keys whose reference cannot be resolved: no verdict depends on their values.
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
    """Finds the key that an unknown one may be a misspelling of, for the first unknown keys."""

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
        # Comparing takes 1 ms per key, and a request may contain 100,000 unknown keys.
        if not self._left:
            return ""
        self._left -= 1
        found = difflib.get_close_matches(key, self._names.get(_side(key), ()), n=1, cutoff=0.75)
        return found[0] if found else ""


_SUGGESTIONS: Final = 20  # number of suggestions for one configuration: more unknown keys are no misspellings
