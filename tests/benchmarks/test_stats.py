# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The statistics against SciPy and against what they must do."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchmarks.answer_reserve.stats import mcnemar_p_value, paired_change, rate

HITS = st.lists(st.booleans(), min_size=1, max_size=60)


@given(HITS)
@settings(deadline=None)
def test_with_one_request_a_problem_the_interval_is_wilsons(hits):
    found = rate(hits, range(len(hits)))
    wilson = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx(tuple(wilson), abs=1e-9)


@given(HITS, st.integers(2, 4))
@settings(deadline=None)
def test_copies_of_a_request_do_not_narrow_the_interval(hits, copies):
    once = rate(hits, range(len(hits)))
    copied = rate(hits * copies, [*range(len(hits))] * copies)
    assert copied.of == copies * once.of
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high), abs=1e-9)


def test_seeds_that_differ_narrow_the_interval():
    once = rate([True, False] * 20, range(40))
    more = rate([True, False] * 20 + [False, True] * 20, [*range(40)] * 2)
    assert more.high - more.low < once.high - once.low


def test_no_requests_have_no_rate():
    assert math.isnan(rate([], []).value)
    assert paired_change([], [], []).p_value == 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
@settings(deadline=None)
def test_with_one_seed_the_paired_test_is_mcnemars(pairs):
    before, after = zip(*pairs, strict=True)
    change = paired_change(before, after, range(len(pairs)))
    assert change.p_value == pytest.approx(mcnemar_p_value(before, after))
    assert change.change == pytest.approx((sum(after) - sum(before)) / len(pairs))
    assert change.low <= change.change <= change.high


def test_repeats_of_one_problem_are_one_piece_of_evidence():
    before, after = [False] * 9, [True] * 9
    assert paired_change(before, after, range(9)).p_value < 0.05
    assert paired_change(before, after, [0] * 9).p_value == 1
    # McNemar's test over requests is the stricter one about a change.
    assert mcnemar_p_value(before, after) < 0.05
