"""GPU names: whole names, and only what RE2 and Python read in the same way."""

from __future__ import annotations

import time

import pytest

from bursar.policies.crossquota.gpu_patterns import PatternError, Patterns, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/gpumem"),
        (r"nvidia\.com/gpu", "nvidia.com/gpu", "nvidiaxcom/gpu"),
        (r"nvidia\.com/(gpu|mig-.+)", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-"),
        (r"(?:nvidia|amd)\.com/gpu", "amd.com/gpu", "xamd.com/gpu"),
        (r"(?P<vendor>nvidia|amd)\.com/gpu", "nvidia.com/gpu", "nvidia.com/GPU"),
        (r"(?i)NVIDIA\.com/gpu", "nvidia.com/GPU", "nvidia.com/cpu"),
        (r"(?i:NVIDIA)\.com/gpu", "nvidia.com/gpu", "nvidia.com/GPU"),
        (r"[a-z]+\.com/gpu-\d{1}", "amd.com/gpu-1", "amd.com/gpu-10"),
        (r"[^/]+/v?gpu", "a.dev/vgpu", "a/b/gpu"),
        (r"a{2}b{0}", "aa", "aab"),
        ("a.{2}", "abc", "ab"),
        (r"[]a]\w*?", "]x", "bx"),
        (r"[^]({*?]", "a", "]"),
        (r"a{2,3}?|\.{0,1}", "aaa", "aaaa"),
        ("(a+b)?c", "aabc", "aab"),
        ("", "", "a"),
    ],
)
def test_whole_names_match(pattern: str, matching: str, other: str) -> None:
    patterns = Patterns((pattern,))
    assert [patterns.match(name) for name in (matching, other, matching)] == [True, False, True]


def test_digits_are_ascii_only() -> None:
    assert not Patterns((r"gpu\d",)).match("gpu٣")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[invalid", "a [ is not closed"),
        ("a(b", "is not a regular expression"),
        ("a)b", "a ) is not opened"),
        ("*a", "is not a regular expression"),
        (r"(gpu)\1", "back-reference"),
        ("(?P<a>gpu)(?P=a)", "back-reference"),
        ("(?=gpu)", "look-around, (?="),
        ("(?!gpu)", "look-around"),
        ("(?<=gpu)", "look-around"),
        ("(?<!gpu)", "look-around"),
        ("(?<a>gpu)", "the group (?<"),
        ("(?>gpu)", "the group (?>"),
        ("(?#gpu)", "the group (?#"),
        ("(gpu)?(?(1)a|b)", "the group (?("),
        ("gpu++", "repeat of a repeat"),
        ("gpu**", "repeat of a repeat"),
        ("gpu*?+", "repeat of a repeat"),
        ("gpu{2}{3}", "repeat of a repeat"),
        ("gpu{}", "counts nothing"),
        ("gpu{2", "counts nothing"),
        ("gpu{1001}", "more than 1000 times"),
        (r"\pN", "the escape \\p"),
        (r"\z", "the escape \\z"),
        ("gpu\\", "the escape \\"),
        ("[[:alpha:]]", "a [ inside of [ ]"),
        ("[^][]a]", "a [ inside of [ ]"),
        ("[^]", "a [ is not closed"),
        (r"[\b]", "the escape \\b"),
        ("(a+)+", "repeat inside of a repeat"),
        ("(a|b*){5}", "repeat inside of a repeat"),
        ("((ab*)c)*", "repeat inside of a repeat"),
        (".*a.*b.*c.*", "more than 3 repeats"),
        ("a" * 257, "longer than 256"),
        ("a{2}{,3}", "repeat of a repeat"),
    ],
)
def test_everything_else_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert problem in str(caught.value)


def test_no_accepted_pattern_takes_long_on_a_name_that_users_choose() -> None:
    patterns = Patterns((r".*a.*b.*c",))
    started = time.process_time()
    assert not patterns.match("ab" * 150)
    assert time.process_time() - started < 2
