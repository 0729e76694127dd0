# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What counts as a stated answer."""

from fractions import Fraction

import pytest

from benchmarks.answer_reserve.extractors import (
    aime_answer,
    answer_line,
    arithmetic_answer,
    boxed,
    gsm8k_answer,
    number,
    without_cut_number,
)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed {7}", "7"),
        (r"first \boxed{1}, no: \boxed{2}.", "2"),
        (r"\boxed{\frac{3}{4}}", r"\frac{3}{4}"),
        (r"\boxed{\text{12 } \{x\}}", r"\text{12 } \{x\}"),
        (r"\fbox{3} \fboxed{5}", "5"),
        # Cut: a box that is not closed states nothing, and hides no earlier one.
        (r"\boxed{42", None),
        (r"\boxed{1} then \boxed{23", "1"),
        (r"\boxed{}", None),
        ("boxed{4}", None),
        ("", None),
    ],
)
def test_the_last_closed_box_is_read_with_its_braces(text, inside):
    assert boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Answer: 12", "12"),
        ("**Answer:** 12", "** 12"),
        ("ANSWER = 5 apples\nthanks", "5 apples"),
        ("The answer is 7.", "7."),
        ("The final answer is: $\\$18$", "$\\$18$"),
        ("work\n#### 1,234", "1,234"),
        ("Answer: 1\nAnswer: 2", "2"),
        ("Answer:", None),
        ("Answer:\n12", None),
        ("I have no answer for that", None),
        ("answers are 3", None),
    ],
)
def test_the_last_answer_line_is_read(text, stated):
    assert answer_line(text) == stated


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("$18", 18),
        (r"\$1{,}234.50", Fraction(2469, 2)),
        ("1,234", 1234),
        ("-5", -5),
        ("\u22125", -5),
        ("12.50 dollars", Fraction(25, 2)),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (r"\frac{ 3 }{ 4 }", Fraction(3, 4)),
        (r"m+n = 113", 113),
        (r"42\text{ apples}", 42),
        ("20%", 20),
        ("007", 7),
        # None of these states one number.
        ("1/0", None),
        ("3 or 4", None),
        ("between 1 and 2", None),
        ("x", None),
        ("", None),
    ],
)
def test_one_number_is_read_through_units_and_latex(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Answer: 12", "12"),
        ("Answer: 12\n", "12"),
        ("Answer: ", None),
        ("12", None),
        ("Answer: 1.5", None),
    ],
)
def test_an_arithmetic_answer_is_a_whole_number_on_its_line(text, stated):
    assert arithmetic_answer(text) == stated


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (r"The answer is 3, so \boxed{4}", "4"),
        ("#### 1,000", "1000"),
        ("The answer is $2.50.", "5/2"),
        (r"\boxed{18 \text{ dollars}}", "18"),
        # Numbers in passing are no answer.
        ("He has 3 apples and buys 4", None),
    ],
)
def test_a_gsm8k_answer_stands_in_a_box_or_on_an_answer_line(text, stated):
    assert gsm8k_answer(text) == stated


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (r"\boxed{073}", "73"),
        (r"\boxed{204.0}", "204"),
        (r"\boxed{m + n = 113}", "113"),
        ("**Answer: 5**", "5"),
        (r"\boxed{1000}", None),
        (r"\boxed{-3}", None),
        (r"\boxed{\frac{1}{2}}", None),
        (r"\boxed{2, 3}", None),
    ],
)
def test_an_aime_answer_is_an_integer_up_to_999(text, stated):
    assert aime_answer(text) == stated


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Answer: 12", "Answer: "),
        ("Answer: 1,23", "Answer: "),
        ("Answer: 1.", "Answer: "),
        ("Answer: 12\n", "Answer: 12\n"),
        (r"\boxed{12}", r"\boxed{12}"),
        (r"\boxed{12", r"\boxed{"),
    ],
)
def test_a_number_at_the_end_of_a_cut_text_is_not_trusted(text, left):
    assert without_cut_number(text) == left
