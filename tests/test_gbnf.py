"""Grammars are refused before llama.cpp sees them, in one line that names the place; good ones pass."""

from __future__ import annotations

import pytest

from specui.engine import gbnf
from specui.engine.gbnf import check_gbnf, traits
from specui.errors import SettingError

GOOD = [
    'root ::= "yes" | "no"',
    '# a comment\nroot ::= item+ # another\n\nitem ::= "- " [^\\n]+ "\\n"\n',
    'root ::=\n  "a" |\n  "b"\r\n',
    'root ::= (\n "a"\n | b )?\nb ::= [a-z0-9_\\-\\]]{2,3} . "\\x41\\u00e9\\U0001F600"',
    'root ::= "한" [^ぁ-ゟ]* "\\"quoted\\\\"',
    "root ::= <think> [^<]* <[7]> !<[8]>",
    'root ::= list\nlist ::= "a" list | ""',
    'root ::= ws "x"\nws ::= | " " | "\\n"',
    'root ::= "a"{3} "b"{0,2000} "c"{2,} "d"{0}',
    'root ::= [] [^] "" "a"',
    "root ::= " + "(" * 100 + '"a"' + ")" * 100,
]

BAD = [
    ("", "root ::="),
    ("  \n", "root ::="),
    ("yes or no", "::= at line 1, column 5"),
    ('x ::= "a"', "named root"),
    ('root ::= "a', "line 1, column 10"),
    ('root ::= "a"\nb ::= [x', "line 2, column 7"),
    ('root ::= "a" ]', "line 1, column 14"),
    ('root ::= ("a"', ") at line 1"),
    ('root ::= "\\q"', "an escape"),
    ('root ::= "\\u12"', "an escape"),
    ('root ::= "a"\n | "b"', "line 2"),
    ('root ::= "a"\n\nitem ::= nothing\n', "which line 3 uses"),
    ("root_1 ::= x", "::= at line 1, column 5"),
    ('root ::= * "a"', "something to repeat"),
    ('root ::= ""+', "something to repeat"),
    ('root ::= "a"{0}?', "something to repeat"),
    ('root ::= "a"{x}', "a count"),
    ('root ::= "a"{1;2}', "} at line 1"),
    ('root ::= "a"{3,1}', "at least 3"),
    ('root ::= "a"{2001}', "2,000"),
    ('root ::= ("a" | "b" | (x | "d")){1000}\nx ::= "e"', "2,000"),
    ("root ::= " + '"' + "a" * 1000 + '"{1500}', "smaller"),
    ('root ::= "a"{99999999999}', "a count"),
    ('root ::= root "a" | "b"', "begin with itself"),
    ('root ::= a root "x" | "y"\na ::= b\nb ::= ""', "begin with itself"),
    ('root ::= a\na ::= b?  c\nb ::= "x"\nc ::= [a-z]* a', "begin with itself"),
    ('root ::= "x" | ws* "y"\nws ::= | " "', "never empty"),
    ('root ::= "a"**', "never empty"),
    ('root ::= ("a" |)+', "never empty"),
    ("root ::= <th", "a token"),
    ("root ::= <[x]>", "a token"),
    ('root ::= "\0"', "NUL"),
    ('root ::= "\ud83d"', "surrogates"),
    ("root ::= " + "(" * 121 + '"a"' + ")" * 121, "120 groups"),
    ("x" * 200_001, "200,000"),
    ("root ::= r1\n" + "".join(f'r{i} ::= "a"\n' for i in range(2_001)), "smaller"),
    ("root ::= " + '"a"{0,2000} ' * 26, "smaller"),
]


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_good_grammars_pass(text: str) -> None:
    check_gbnf(text)


@pytest.mark.parametrize(("text", "words"), BAD, ids=[text[:30] for text, _ in BAD])
def test_broken_grammars_are_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        check_gbnf(text, "--grammar")
    message = str(caught.value)
    assert message.startswith("--grammar: ")
    assert words in message
    assert "\n" not in message
    assert len(message) < 300


def test_a_rule_written_twice_counts_as_it_stands_last() -> None:
    check_gbnf('root ::= a\na ::= a "x"\na ::= "y"')


def test_long_chains_of_rules_are_read_in_time_and_without_recursion() -> None:
    count = gbnf.MAX_NAMED_RULES - 1
    chain = "".join(f"r{i} ::= r{i + 1}\n" for i in range(count - 1))
    check_gbnf(f'root ::= r0\n{chain}r{count - 1} ::= "a"\n')
    with pytest.raises(SettingError, match="begin with itself"):
        check_gbnf(f"root ::= r0\n{chain}r{count - 1} ::= r0\n")


@pytest.mark.parametrize(
    ("text", "tokens", "excludes_wide"),
    [
        ('root ::= "<think>"', (), False),
        ("root ::= <think> !<[8]> <[8]>", ("<think>", "<[8]>"), False),
        ('root ::= [^"\\\\\\x00-\\x1F\\x7F]', (), False),
        ("root ::= [é-ü]", (), False),
        ("root ::= [^é]", (), True),
        ("root ::= [^a\\u2028]", (), True),
        ("root ::= [^\\x7F-\\x9F]", (), True),
        ("root ::= [^\\U0001F600]", (), True),
    ],
)
def test_traits(text: str, tokens: tuple[str, ...], excludes_wide: bool) -> None:
    known = traits(text)
    assert known.tokens == frozenset(tokens)
    assert known.excludes_wide is excludes_wide
