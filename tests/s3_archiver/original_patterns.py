"""``python -m tests.s3_archiver.original_patterns`` stores the results of Java's regular expressions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.s3_archiver.original_lines import ask_java

ANSWERS: Final = Path(__file__).with_name("original_patterns.json")
REFUSED: Final = "!"

TOPICS: Final = (
    *("acd", "abc", "xz", "a", "b", "z", "A", "Z", "aB", "ABC", "abcabc", "aa", "aaa", "ab", "aab", "abab"),
    *(
        "orders",
        "Orders",
        "ORDERS",
        "orders.v1",
        "orders_v2",
        "orders-dlq",
        "orders-dlq.v10",
        "prod.orders.eu",
    ),
    *(
        "test.orders",
        "prod.payments",
        "prod_payments",
        "dev-Payments",
        "1",
        "12",
        "007",
        "v1",
        "v12.3",
        "_schemas",
    ),
    *(
        "__consumer_offsets",
        ".",
        "-",
        "_",
        "a.b",
        "a-b",
        "a_b",
        "a.b.c",
        "a+b",
        "a&b",
        "[a]",
        "k",
        "s",
        "x-1",
    ),
    *(
        "cdc.db1.public.users",
        "cdc.db1.public.users_tmp",
        "cdc.db22.audit.users",
        "DB1-Users-2024",
        "^",
        "a^",
    ),
)

WRITTEN: Final = r"""
orders
orders.*
orders\..*
(?i)orders.*
^orders.*$
\Aorders\z
\Aorders\Z
orders$
^(prod|test)\.orders.*
(prod|test)[._](orders|payments)(\.eu)?
(?!__).*
^(?!.*(-dlq|_tmp)).*$
(?!.*-dlq).*
.*(?<!_tmp)
.*(?<!_tmp|-dlq)
(?<=a|bc)x|a.*
[a-z&&[^b]]+
[a-z&&[^bc]&&[^d]]+
[a-d[x-z]]+
[a-z&&[^m-p]]*
[\w&&[^\d]]+
[\p{L}&&[^\p{Lu}]]+
[^abc]+
[^a[b]]+
[^a&&b]+
[^a-c&&a-z]+
[a-c&&]
[&&a]
[a&&&b]+
[a&b]+
[a-c&&b&&b]
[a-z&&[a-c]b&&c]
[a&&[b]&c]
[a&&b&c]
[]a]+
[^]a]+
[a\]b]+
[[a]]+
\[a\]
[a-]+
[-a]+
[a-[bc]]+
[\w-.]+
[\w.-]+
[._-]
[+--]
[a-z-_]+
[z-a]
[a
a]
a}
{a}
a{
a{2}
a{2,}
a{,2}
a{1,2}
a{2,1}
a{2}b
a{x}
(ab){2}
(?:ab){2}
(ab|abc)+
a**
a*+
a++
a+?
a??b
a?+b
(a|ab)*+c
(?>a|ab)c
(?>a*)b
*a
+
?
a|*b
\p{Lower}+
\p{Upper}+
\p{Alpha}+
\p{Alnum}+
\p{Digit}+
\p{XDigit}+
\p{Punct}
\p{Graph}+
\p{Print}+
\p{ASCII}+
\p{Space}
\p{Blank}
\p{Cntrl}
\p{lower}
\p{L}+
\pL+
\p{Lu}\p{Ll}*
\PL+
\P{L}+
\p{IsL}+
\p{IsLatin}+
\p{IsAlphabetic}+
\p{IsUppercase}+
\p{IsPunctuation}
\p{IsDigit}+
\p{isDigit}+
\p{InBasicLatin}+
\p{InGreek}+
\P{InGreek}+
\p{IsGreek}+
\p{IsNothing}
\p{InNothing}
\p{javaLowerCase}+
\p{javaUpperCase}+
\p{javaLetterOrDigit}+
\p{javaJavaIdentifierPart}+
\p{javaJavaIdentifierStart}+
\p{javaWhitespace}
\p{javaMirrored}
\p{script=Latin}+
\p{sc=Latin}+
\p{block=BasicLatin}+
\p{blk=BasicLatin}+
\p{gc=Lu}+
\p{general_category=Lu}+
\p{general_category=Uppercase}
\p{LC}+
\p{LD}+
\p{L1}+
\p{all}+
\p{N}+
\p{Nd}+
\p{P}
\p{Pc}
\p{Pd}
\p{Po}
\p{S}
\p{Sk}
\p{Sm}
\p{Z}
\p{C}
\p{Xx}
\p{}
\p
(?i)\p{Lower}+
(?i)\p{Lu}+
(?i)\p{javaUpperCase}+
(?i)\p{IsLowercase}+
(?i)[a-c]+
(?i)[^a-c]+
(?i)a[B-C]+
(?i)abc
(?iu)ABC
(?iu)\u212a
(?iu)[\u017f]
(?i)\u212a
a(?i)b
a(?i:b)c
(?i:a)bc
(a(?i)b)C|.B
(?i)a(?-i)b
(?i-s:ABC)
(?s).+
(?m)^a$
(?d)a.
(?u)a
(?U)\w+
(?U)\p{Punct}
(?x) a b c # the topic
(?x)[ a b ]+
(?x) a \  b
(?x)a + b
(?xi) A B
(?x:a b)c
(?x) orders \. v 1
(?)a
(?-)a
(?i-)A
(?--i)a
(?y)a
(?P<n>a)
(?#comment)a
(?<name>a)b\k<name>b
(?<n>ab)\k<n>
(?<n>a)\k<m>
(?<1>a)
(?<n>a)(?<n>b)
\k<n>(?<n>a)
(a)\1
(a)\1+
(ab)\1
(a)(b)\2\1
(a)\2
\1(a)
(a\1)
(a|b\1)+
(a)\10
(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10
(?i)(a)\1
(?i)(ab)\1c?
\Qa.b\E
\Qa.b
\Q\E
\Qorders\E.*
\Q[a]\E
[\Q^\E]
[\Q-]\E]+
a\Q+\Eb
\Qab\E+
\Q1\E2
a\E
\x61\x62
\x{61}+
\x{110000}
\x6
\u0061
\u006
\0141
\0
\08
\0377
\07
\t
\e
\cA
\cj
\N{LATIN SMALL LETTER A}b
\N{NO SUCH CHARACTER}
\h
\H+
\v
\V+
[\v-x]
[\h]
\R
\R?a
\X+
\X
\s
\S+
\d+
\D+
\w+
\W
\ba\b
.*\bv1
\borders\b.*
a\Bb
.*\B.*
\Ga
\G\Ga
a\G
\b{g}a\b{g}
\b{g}
\y
\g
\_
\-
\.
\&
\<a
\i
\
a\
()
(a
a)
(?:a
(?
(?<
(?=a)a
(?=a).*
(?!a).*
(?<!a)b
(?<=a)b
.(?<=a)
.+(?<=a+)
.+(?<=[abc]{2})
.+(?<!dlq)
(?=.*orders)(?=.*v).*
(?=a)*a
^*a
$*
a^
\^
a\^
^^a$$
|a
a|
a||b
||

.
..
.*
.+
.*?
[.]
[$^]
[\^]
[\d-\w]+
[a-\d]
[\p{L}\d._-]+
[\p{Alpha}&&\p{Lower}]+
[\p{L}&&[a-m]]+
[[a-c]&&[b-d]]
[a-f&&d-z]
[[:alpha:]]+
[\b]
[\1]
[\A]
[\R]
[\x61-\x63]+
[\u0061-\u0063]+
[\cA-z]+
[\0141-\0143]+
[\Qa\E-c]+
cdc\.(?:db\d+)\.public\.(?!.*_tmp$).*
(?<env>prod|test|dev)[.-](?<rest>.*)
[a-zA-Z0-9\._\-]+
^((?!dlq).)*$
(?i:^(prod|DEV)[-_.]?payments$)
(?:[^.]+\.){2}[^.]+
\w+(?:[.-]\w+){0,2}
[^\W_]+
[^\p{Punct}]+
\p{Alnum}+(?:\p{Punct}\p{Alnum}++)*+
""".strip("\n").split("\n")

_ATOMS: Final = (
    *("a", "b", "c", "o", "v", "1", ".", r"\.", r"\w", r"\d", r"\W", "[a-c]", "[^b]", r"\p{Lower}", r"\p{L}"),
    *("[a-z&&[^b]]", "[a-c[x-z]]", "[\\w&&[^_]]", r"\P{Lu}", r"\Qa.\E", "(?i)", "(?i:B)", "^", "$", r"\b"),
    *("(?=a)", "(?!b)", "(?<=a)", "(?<!b)", "[A-Z]", "_", "-", "x", r"\x61", r"\h", r"\H"),
)
_QUANTIFIERS: Final = ("", "", "", "*", "+", "?", "*?", "+?", "*+", "++", "?+", "{2}", "{1,2}", "{2,}+")
_MEMBERS: Final = (
    *(
        "a",
        "b",
        "c",
        "a-c",
        "b-z",
        "A-Z",
        "0-9",
        r"\w",
        r"\d",
        r"\W",
        "-",
        ".",
        "_",
        "^",
        "&",
        "&&",
        "&&",
        "[",
    ),
    *("[a-c]", "[^b]", "[b&&c]", r"\p{Lower}", r"\P{L}", "]", r"\]", r"\-", r"\Q-\E"),
)


def _made(chance: random.Random, depth: int = 2) -> str:
    pieces = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.2 and depth:
            opening = chance.choice(["(", "(?:", "(?>", "(?i:", "(?=", "(?!"])
            atom = f"{opening}{_made(chance, depth - 1)})"
        elif kind < 0.35:
            members = "".join(chance.choice(_MEMBERS) for _ in range(chance.randint(1, 5)))
            atom = f"[{chance.choice(['', '', '^'])}{members}]"
        else:
            atom = chance.choice(_ATOMS)
        pieces.append(atom + chance.choice(_QUANTIFIERS))
        if chance.random() < 0.12:
            pieces.append("|")
    return "".join(pieces)


def made(seed: int, count: int) -> Iterator[str]:
    # Random patterns, many of which Java refuses.
    chance = random.Random(seed)  # noqa: S311 - the same ones each time
    for _ in range(count):
        yield _made(chance)


PATTERNS: Final = tuple(dict.fromkeys([*WRITTEN, *made(7, 1_000)]))


def ask(patterns: Sequence[str]) -> dict[str, str]:
    """Return Java's results: for each pattern a 1 or 0 for each topic, or ``!``.

    Raises MavenError if the jar is unavailable.
    """
    return dict(zip(patterns, ask_java("Patterns.java", [TOPICS, patterns]), strict=True))


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(ask(PATTERNS), indent=0) + "\n")
