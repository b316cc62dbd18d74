"""Patterns of Java without a JVM; `jvm/test_beside_kafka_source.py` compares drawn ones with Java itself."""

from __future__ import annotations

import pytest
from triolog.tools.spark.source.java_pattern import PatternError, compile_java


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("pt", "opt opt.b", "o"),
        ("^opt$", "opt", "opt.b"),
        ("[a-z&&[^x]]pt", "opt", "xpt"),
        ("[^a-c&&[b]]", "a c", "b"),
        ("[a-c[x-z]]", "b y", "d"),
        ("[a-p&&[^o]&&[^b-d]]", "a", "o b"),
        ("[]o]", "o", "p"),
        ("[[:alpha:]]", "a h", "b"),
        ("(?i)OP(?-i)T", "opT", "opt"),
        ("(?i:[^o])", "a", "O o"),
        (r"\Qt.b\E", "opt.b", "optxb"),
        (r"\p{Lower}\d", "a1", "A1 1a"),
        (r"\P{Alnum}", "a.b", "ab"),
        (r"\x6f\u0070", "opt", "pto"),
        ("(?<name>a|b)+$", "xab", "abx"),
        ("a{2,}", "baa", "aba"),
        ("a*+a", "", "aaa"),
        (r"\bb", "a.b b", "ab"),
        (r"\s|\R", "", "a-b"),
    ],
)
def test_a_pattern_is_found_as_java_finds_it(pattern: str, found: str, not_found: str) -> None:
    compiled = compile_java(pattern)
    assert [name for name in found.split() if not compiled.search(name)] == []
    assert [name for name in not_found.split() if compiled.search(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "*a", "a**", "a{,2}", "{", "[", "[a", "[a&&]", "[a&&[b]c]", "[z-a]", r"(a)\1", r"\k<a>", r"\G", r"\X"),
        *(r"\b{g}", "(?x)a", "(?P<n>a)", "(?#a)", "(?(1)a)", r"\y", "\\", r"\x4", r"\p{IsGreek}", r"(?i)\p{Lower}", "a" * 1001),
    ],
)
def test_a_pattern_that_java_refuses_or_that_has_no_equal_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_java(pattern)
