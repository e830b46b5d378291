"""Translates Java's regular expressions, which Kafka Connect uses for topic names, to Python."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn

# `[a-z&&[^b]]`, `\p{Lower}`, `\Q.\E` and `(?<name>…)` mean something else in Python, or nothing. Topic names
# are ASCII, so each class and property becomes a set of ASCII characters. Only dots, negations and the
# characters themselves match others.
Characters = frozenset[str]

_OTHERS: Final = chr(0x10FFFF)  # stands for all characters beyond ASCII that a pattern does not name
_ASCII: Final[Characters] = frozenset(map(chr, range(128)))
_ALL: Final[Characters] = _ASCII | {_OTHERS}
_NOTHING: Final[Characters] = frozenset()
_NEVER: Final = "(?!)"


class JavaRegexError(ValueError): ...


@functools.lru_cache(maxsize=256)
def java_pattern(text: str) -> re.Pattern[str]:
    """Translate a pattern of ``java.util.regex``; for ASCII, ``fullmatch`` equals Java's ``matches``."""
    translated = _Translator(text).whole()
    try:
        return re.compile(translated, re.DOTALL | re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"it has no translation into Python's regular expressions: {error}") from error


# -- characters --------------------------------------------------------------------------------------------


def _chosen(is_in: Callable[[str], bool]) -> Characters:
    return frozenset(filter(is_in, _ASCII))


def _in_categories(*names: str) -> Characters:
    return _chosen(lambda character: unicodedata.category(character).startswith(names))


_LOWER: Final = _chosen(str.islower)
_UPPER: Final = _chosen(str.isupper)
_LETTERS: Final = _LOWER | _UPPER
_DIGITS: Final = frozenset("0123456789")
_WORD: Final = _LETTERS | _DIGITS | {"_"}
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_PUNCTUATION: Final = _chosen(lambda character: "!" <= character <= "~") - _LETTERS - _DIGITS
_CONTROL: Final = _in_categories("Cc")
_IDENTIFIER_IGNORABLE: Final = _chosen(lambda c: c <= "\x08" or "\x0e" <= c <= "\x1b" or c == "\x7f")
_BLANK: Final = frozenset(" \t")
_VERTICAL: Final = frozenset("\n\x0b\f\r")
# These properties match every letter if case is ignored, since Java 16.
_CASED: Final = frozenset({"Lower", "Upper", "Lu", "Ll", "Lt", "LOWERCASE", "UPPERCASE", "TITLECASE"})

_CLASSES: Final[Mapping[str, Characters]] = {
    "d": _DIGITS,
    "s": _SPACE,
    "w": _WORD,
    "h": _BLANK,
    "v": _VERTICAL,
}
_PLACES: Final = ("GREEK", "CYRILLIC", "ARABIC", "HEBREW", "HIRAGANA", "KATAKANA")  # none of ASCII
# Names of POSIX; with java: methods of java.lang.Character; with Is: binary properties; with In: blocks.
_NAMED: Final[Sequence[tuple[Characters, str]]] = (
    (_ASCII, "ASCII InBASICLATIN InBASIC_LATIN"),
    (_ALL, "javaDefined IsASSIGNED"),
    (_NOTHING, "javaIdeographic IsIDEOGRAPHIC javaTitleCase IsTITLECASE IsJOIN_CONTROL IsJOINCONTROL"),
    (_NOTHING, "IsNONCHARACTER_CODE_POINT IsNONCHARACTERCODEPOINT"),
    (_NOTHING, "script=GREK script=CYRL script=ARAB script=HEBR script=HIRA script=KANA"),
    (_NOTHING, "script=HAN script=HANI script=HANGUL script=HANG"),
    *((_NOTHING, f"script={place} In{place}") for place in _PLACES),
    (_LETTERS, "Alpha javaAlphabetic IsALPHABETIC javaLetter IsLETTER javaUnicodeIdentifierStart"),
    (_LETTERS, "script=LATIN script=LATN"),
    (_ASCII - _LETTERS, "script=COMMON script=ZYYY"),
    (_LOWER, "Lower javaLowerCase IsLOWERCASE"),
    (_UPPER, "Upper javaUpperCase IsUPPERCASE"),
    (_DIGITS, "Digit javaDigit IsDIGIT"),
    (frozenset("0123456789abcdefABCDEF"), "XDigit IsHEX_DIGIT IsHEXDIGIT"),
    (_LETTERS | _DIGITS, "Alnum javaLetterOrDigit"),
    (_PUNCTUATION, "Punct"),
    (_in_categories("P"), "IsPUNCTUATION"),
    (_LETTERS | _DIGITS | _PUNCTUATION, "Graph"),
    (_LETTERS | _DIGITS | _PUNCTUATION | {" "}, "Print"),
    (_BLANK, "Blank"),
    (_SPACE, "Space IsWHITE_SPACE IsWHITESPACE"),
    (_SPACE | set("\x1c\x1d\x1e\x1f"), "javaWhitespace"),
    (frozenset(" "), "javaSpaceChar"),
    (_CONTROL, "Cntrl javaISOControl IsCONTROL"),
    (_IDENTIFIER_IGNORABLE, "javaIdentifierIgnorable"),
    (_WORD | _IDENTIFIER_IGNORABLE, "javaUnicodeIdentifierPart"),
    (_WORD | {"$"} | _IDENTIFIER_IGNORABLE, "javaJavaIdentifierPart"),
    (_LETTERS | {"_", "$"}, "javaJavaIdentifierStart"),
    (frozenset("()<>[]{}"), "javaMirrored"),
)
_PROPERTIES: Final[Mapping[str, Characters]] = {
    "InBASIC LATIN": _ASCII,
    **{name: characters for characters, names in _NAMED for name in names.split()},
}
_CATEGORIES: Final = re.compile(r"L[ultmo]?|M[nec]?|N[dlo]?|Z[slp]?|C[cfosn]?|P[dsecoif]?|S[mcko]?")
_UNIONS: Final[Mapping[str, Characters]] = {
    "LC": _LETTERS,
    "LD": _LETTERS | _DIGITS,
    "L1": _ASCII,
    "all": _ALL,
}
_CONTROLS: Final[Mapping[str, str]] = {
    "a": "\a",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_ANCHORS: Final[Mapping[str, str]] = {
    "A": r"\A",
    "B": r"\B",
    "G": r"\A",
    "Z": r"\Z",
    "b": r"\b",
    "z": r"\Z",
}
_LINE_END: Final = r"\r\n|[\n-\r]"
_GRAPHEME: Final = r"\r\n|."
_FLAGS: Final = "idmsuxU"
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


def _expression(characters: Iterable[str]) -> str:
    found = frozenset(characters)
    is_negated = _OTHERS in found
    if is_negated:
        found = _ASCII - found
    if not found:
        return "." if is_negated else _NEVER
    return f"[{'^' * is_negated}{''.join(map(_escaped, sorted(found)))}]"


def _escaped(character: str) -> str:
    return f"\\U{ord(character):08x}"


_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)


def _without_quotes(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else "".join(map(_as_itself, match[1]))


def _as_itself(character: str) -> str:
    if character.isascii() and character.isdecimal():
        return f"\\x{ord(character):02x}"  # no part of a number in front of it
    return f"\\{character}" if character.isascii() and not character.isalpha() else character


# -- expressions -------------------------------------------------------------------------------------------


class _Translator:
    def __init__(self, text: str) -> None:
        self._text = _QUOTED.sub(_without_quotes, text)
        self._is_unquoted = self._text != text
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._groups = 0
        self._open: list[int] = []
        self._names: dict[str, int] = {}

    def whole(self) -> str:
        branches = self._branches()
        if self._peek():
            self._refuse("')' without '('")
        return "|".join(branches)

    # -- reading --

    def _peek(self, further: int = 0) -> str:
        at = self._at + further
        return self._text[at : at + 1]  # empty at the end

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self, what: str) -> str:
        character = self._peek()
        if not character:
            self._refuse(f"{what} is not closed")
        self._at += 1
        return character

    def _until(self, end: str, what: str) -> str:
        text = ""
        while not self._take(end):
            text += self._next(what)
        return text

    def _skip_comments(self) -> None:
        while "x" in self._flags:
            if self._peek() and self._peek() in _SPACE:
                self._at += 1
            elif self._peek() == "#":
                while self._peek() not in ("", "\n", "\r"):
                    self._at += 1
            else:
                return

    def _refuse(self, why: str) -> NoReturn:
        # Unquoted text is longer than what the user wrote.
        where = "" if self._is_unquoted else f" (at character {min(self._at, len(self._text)) + 1})"
        raise JavaRegexError(f"{why}{where}")

    # -- structure --

    def _branches(self) -> list[str]:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches

    def _sequence(self) -> str:
        pieces: list[str] = []
        while True:
            self._skip_comments()
            if self._peek() in ("", "|", ")"):
                return "".join(pieces)
            atom = self._atom()
            if atom is not None:
                pieces.append(self._repeated(atom))

    def _atom(self) -> str | None:
        """Read an expression that a quantifier may follow; None for flags."""
        character = self._peek()
        read = {"(": self._group, "[": self._class_, "\\": self._escaped}.get(character)
        if read is not None:
            return read()
        if character in "*+?":
            self._refuse(f"the quantifier '{character}' has nothing before it")
        if character == "{":
            self._refuse("'{' repeats nothing; write \\{ for the character")
        self._at += 1
        if character in ("^", "$"):
            return r"(?:\A)" if character == "^" else r"(?:\Z)"
        return _expression(self._dot() if character == "." else self._matching(character))

    def _class_(self) -> str:
        return _expression(self._class())

    def _dot(self) -> Characters:
        if "s" in self._flags:
            return _ALL
        return _ALL - set("\n" if "d" in self._flags else "\n\r")

    def _repeated(self, atom: str) -> str:
        self._skip_comments()
        count = self._any_of("*+?")
        if not count and self._take("{"):
            count = self._count()
        if not count:
            return atom
        self._skip_comments()
        return f"(?:{atom}){count}{self._any_of('+?')}"

    def _any_of(self, characters: str) -> str:
        return next(filter(self._take, characters), "")

    def _count(self) -> str:
        text = self._until("}", "the quantifier '{'")
        found = re.fullmatch(r"(\d+)(?:(,)(\d*))?", text, re.ASCII)
        if found is None or (found[3] and int(found[3]) < int(found[1])):
            self._refuse(f"'{{{text}}}' is not a number of repetitions")
        return f"{{{text}}}"

    def _group(self) -> str | None:
        outer = self._flags
        found = self._read_group()
        if found is not None:
            self._flags = outer
        return found

    def _read_group(self) -> str | None:
        """Read a group; None for flags, which apply to what follows."""
        begin = self._at
        self._take("(")
        if not self._take("?"):
            return self._captured(None)
        for mark in ("<=", "<!", "=", "!", ">"):
            if self._take(mark):
                return self._looked(mark)
        if self._take("<"):
            name = self._until(">", "the name of a group")
            if not _NAME.fullmatch(name) or name in self._names:
                self._refuse(f"'{name}' is not a valid name of a group, or another group's name")
            return self._captured(name)
        if not self._read_flags(begin):
            return None
        return f"(?:{'|'.join(self._closed(begin))})"

    def _closed(self, begin: int) -> list[str]:
        branches = self._branches()
        if not self._take(")"):
            self._at = begin
            self._refuse("'(' is not closed")
        return branches

    def _captured(self, name: str | None) -> str:
        self._groups += 1
        number = self._groups
        if name:
            self._names[name] = number
        self._open.append(number)
        branches = self._closed(self._at)
        self._open.remove(number)
        return f"(?P<g{number}>{'|'.join(branches)})"

    def _looked(self, mark: str) -> str:
        begin = self._at
        branches = self._closed(begin)
        opening = f"(?{mark}"
        if not mark.startswith("<"):
            return f"{opening}{'|'.join(branches)})"
        # Python requires alternatives of one length, so each becomes a look-behind of its own.
        behind = [f"{opening}{branch})" for branch in branches]
        for one in behind:
            try:
                re.compile(re.sub(r"\(\?P=g\d+\)", "", one))
            except re.error:
                self._at = begin
                self._refuse(f"the look-behind '(?{mark}…)' matches texts of different lengths")
        return f"(?:{'|'.join(behind)})" if mark == "<=" else f"(?:{''.join(behind)})"

    def _read_flags(self, begin: int) -> bool:
        """Read flags up to ``:`` (True) or ``)``."""
        flags, is_on = set(self._flags), True
        while True:
            letter = self._next("a group's flags")
            if letter in (":", ")"):
                self._flags = frozenset(flags)
                return letter == ":"
            if letter == "-" and is_on:
                is_on = False
            elif letter in _FLAGS:
                named = {letter, "u"} if letter == "U" else {letter}
                flags = flags | named if is_on else flags - named
            else:
                self._at = begin
                self._refuse(f"'(?{letter}' does not begin a group in Java")

    # -- escapes --

    def _escaped(self) -> str:
        begin = self._at
        self._take("\\")
        letter = self._peek()
        if letter in _ANCHORS:
            self._at += 1
            if letter == "b" and self._take("{g}"):
                self._at = begin
                self._refuse(r"'\b{g}' has no translation")
            return f"(?:{_ANCHORS[letter]})"
        if self._take("R"):
            return f"(?:{_LINE_END})"
        if self._take("X"):
            return f"(?:{_GRAPHEME})"
        if self._take("k"):
            if not self._take("<"):
                self._refuse(r"'\k' is not followed by '<'")
            name = self._until(">", "the name of a group")
            if name not in self._names:
                self._refuse(f"no group before it is called '{name}'")
            return self._reference(self._names[name])
        if letter and letter in "123456789":
            number = int(self._next("a reference"))
            while (digit := self._peek()) and digit in _DIGITS and number * 10 + int(digit) <= self._groups:
                number = number * 10 + int(self._next("a reference"))
            return self._reference(number)
        self._at = begin
        found = self._escape()
        return _expression(found if isinstance(found, frozenset) else self._matching(found))

    def _reference(self, number: int) -> str:
        if number > self._groups:
            self._refuse(f"'\\{number}' refers to a group that is not defined before it")
        if number in self._open:
            self._refuse(f"'\\{number}' refers to the group that it is in")
        flag = "i" if "i" in self._flags else ""
        return f"(?{flag}:(?P=g{number}))"

    def _escape(self) -> str | Characters:
        begin = self._at
        self._take("\\")
        letter = self._next("the escape '\\'")
        if letter in "pP":
            found = self._property()
            return _ALL - found if letter == "P" else found
        if letter.lower() in _CLASSES:
            found = _CLASSES[letter.lower()]
            return _ALL - found if letter.isupper() else found
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        numbers = {
            "0": self._octal,
            "x": self._hexadecimal,
            "u": self._four,
            "c": self._control,
            "N": self._named,
        }
        if letter in numbers:
            return numbers[letter]()
        if letter.isascii() and letter.isalnum():
            self._at = begin
            self._refuse(f"'\\{letter}' is not an escape of Java here")
        return letter

    def _four(self) -> str:
        return self._code(self._digits(4))

    def _control(self) -> str:
        return chr(ord(self._next(r"'\c'")) ^ 64)

    def _octal(self) -> str:
        digits = ""
        while (
            (digit := self._peek()) and digit in "01234567" and len(digits) < (3 if digits[:1] < "4" else 2)
        ):
            digits += self._next("a number")
        if not digits:
            self._refuse(r"'\0' is not followed by an octal number")
        return chr(int(digits, 8))

    def _hexadecimal(self) -> str:
        return self._code(self._until("}", r"'\x{'") if self._take("{") else self._digits(2))

    def _digits(self, count: int) -> str:
        return "".join(self._next("a number") for _ in range(count))

    def _code(self, digits: str) -> str:
        if not re.fullmatch(r"[0-9a-fA-F]+", digits) or int(digits, 16) > 0x10FFFF:  # noqa: PLR2004 - Unicode's last
            self._refuse(f"'{digits}' is not the hexadecimal number of a character")
        return chr(int(digits, 16))

    def _named(self) -> str:
        if not self._take("{"):
            self._refuse(r"'\N' is not followed by '{'")
        name = self._until("}", r"'\N{'")
        try:
            return unicodedata.lookup(name)
        except KeyError:
            self._refuse(f"no character is called '{name}'")

    # -- properties --

    def _property(self) -> Characters:
        name = self._until("}", r"'\p{'") if self._take("{") else self._next(r"'\p'")
        found = self._of_name(name)
        if found is None:
            self._refuse(f"the property '\\p{{{name}}}' is unknown, or has no translation")
        return found

    def _of_name(self, name: str) -> Characters | None:
        key, separator, value = name.partition("=")
        if separator:
            return self._of_pair(key.lower(), value)
        if name.startswith("In"):
            return _PROPERTIES.get(f"In{name[2:].upper()}")
        if name.startswith("java"):
            return self._either_case(name[4:].upper(), _PROPERTIES.get(name))
        if name.startswith("Is"):
            return self._of_unicode(name[2:])
        if "U" in self._flags and name == "Punct":
            return _PROPERTIES["IsPUNCTUATION"]
        return self._either_case(name, _PROPERTIES.get(name)) or self._of_category(name)

    def _of_unicode(self, name: str) -> Characters | None:
        upper = name.upper()
        ways = (
            self._either_case(upper, _PROPERTIES.get(f"Is{upper}")),
            self._of_category(name),
            _PROPERTIES.get(f"script={upper}"),
        )
        return next((found for found in ways if found is not None), None)

    def _of_pair(self, key: str, value: str) -> Characters | None:
        if key in ("sc", "script"):
            return _PROPERTIES.get(f"script={value.upper()}")
        if key in ("blk", "block"):
            return _PROPERTIES.get(f"In{value.upper()}")
        return self._of_category(value) if key in ("gc", "general_category") else None

    def _of_category(self, name: str) -> Characters | None:
        if name in _UNIONS:
            return _UNIONS[name]
        return self._either_case(name, _in_categories(name)) if _CATEGORIES.fullmatch(name) else None

    def _either_case(self, name: str, found: Characters | None) -> Characters | None:
        is_cased = "i" in self._flags and name in _CASED
        return _LETTERS if found is not None and is_cased else found

    # -- classes --

    def _matching(self, character: str) -> Characters:
        if "i" not in self._flags:
            return frozenset({character})
        if "u" in self._flags:
            folded = character.upper().lower()
            return frozenset({character, *_chosen(lambda one: one.upper().lower() == folded)})
        return frozenset({character, *(character.swapcase() if character.isascii() else "")})

    def _range(self, first: str, last: str) -> Characters:
        if last < first:
            self._refuse(f"the range '{first}-{last}' ends before it begins")
        found = _chosen(lambda one: first <= one <= last)
        if "i" not in self._flags:
            return found
        return found | {one.swapcase() for one in found}

    def _class(self) -> Characters:
        begin = self._at
        self._take("[")
        is_negated = self._take("^")
        found = self._members(begin)
        self._take("]")
        return _ALL - found if is_negated else found

    def _members(self, begin: int) -> Characters:
        found: Characters | None = None
        has_intersected = False
        while True:
            self._skip_comments()
            if not self._peek():
                self._at = begin
                self._refuse("'[' is not closed")
            if self._peek() == "]" and found is not None:
                return found
            if self._take("&&"):
                found = self._intersected(found, begin)
                has_intersected = True
            elif has_intersected:
                self._refuse("members of a class after '&&' and a single '&' have no translation")
            else:
                found = (found or _NOTHING) | self._member()

    def _intersected(self, left: Characters | None, begin: int) -> Characters:
        right: Characters | None = None
        self._skip_comments()
        while self._peek() not in ("]", "&"):
            more = self._class() if self._peek() == "[" else self._members(begin)
            right = more if right is None else right | more
            self._skip_comments()
            if not self._peek():
                self._at = begin
                self._refuse("'[' is not closed")
        if right is None:
            self._refuse("'&&' has nothing after it")
        return right if left is None else left & right

    def _member(self) -> Characters:
        if self._peek() == "[":
            return self._class()
        first = self._class_character()
        if isinstance(first, frozenset):
            return first
        self._skip_comments()
        if self._peek() != "-" or self._peek(1) in ("[", "]"):
            return self._matching(first)
        self._take("-")
        self._skip_comments()
        last = self._class_character()
        if isinstance(last, frozenset):
            self._refuse("a range ends in a set of characters")
        return self._range(first, last)

    def _class_character(self) -> str | Characters:
        if self._peek() == "\\":
            if self._peek(1) == "v" and self._peek(2) == "-":
                self._at += 2
                return "\x0b"
            return self._escape()
        return self._next("a class")
