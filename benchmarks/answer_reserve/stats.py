# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Intervals and paired tests for requests that repeat problems over seeds.

Requests of one problem are not independent, so intervals and the tests of an
improvement take the problem as their unit.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """A share with its count and 95 % interval."""

    count: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else float("nan")


@dataclass(frozen=True)
class PairedChange:
    """How a yes-or-no measure of the same requests changed."""

    of: int
    """Pairs."""
    gained: int
    lost: int
    low: float
    high: float
    """95 % interval of the change of the share."""
    p_value: float
    """Exact sign test over problems: McNemar's exact test with one seed."""

    @property
    def change(self) -> float:
        return (self.gained - self.lost) / self.of if self.of else float("nan")


def rate(hits: Iterable[bool], problems: Iterable[int]) -> Rate:
    """The share of hits, with Wilson's interval.

    Where problems repeat, the interval takes the effective sample size: the
    number of requests by how much the problems differ more than chance lets them.

    Args:
        hits: Whether each request is one.
        problems: The problem of each request.

    """
    hits, problems = list(hits), list(problems)
    if not hits:
        return Rate(0, 0, float("nan"), float("nan"))
    count, of = sum(hits), len(hits)
    size = of / _design_effect(hits, problems)
    low, high = proportion_confint(
        count / of * size, size, alpha=1 - CONFIDENCE, method="wilson"
    )
    return Rate(count, of, max(float(low), 0.0), min(float(high), 1.0))


def _design_effect(hits: Sequence[bool], problems: Sequence[int]) -> float:
    share, of = np.mean(hits), len(hits)
    excess = _by_problem(np.asarray(hits, float) - share, problems)
    largest = of / len(excess)
    independent = share * (1 - share) * of
    if independent == 0:
        # All alike: nothing tells repeats apart from copies.
        return largest
    clustered = sum(value**2 for value in excess)
    return float(np.clip(clustered / independent, 1, largest))


def _by_problem(values: Iterable[float], problems: Iterable[int]) -> list[float]:
    """The sum of the values of each problem."""
    sums: dict[int, float] = defaultdict(float)
    for value, problem in zip(values, problems, strict=True):
        sums[problem] += value
    return list(sums.values())


def paired_change(
    before: Iterable[bool], after: Iterable[bool], problems: Iterable[int]
) -> PairedChange:
    """Compare a measure of the same requests under two settings.

    Args:
        before: Whether each request is a hit under the first setting.
        after: The same requests, in the same order, under the second.
        problems: The problem of each request.

    """
    problems = list(problems)
    changes = [int(b) - int(a) for a, b in zip(before, after, strict=True)]
    gained, lost, of = changes.count(1), changes.count(-1), len(changes)
    if not of:
        return PairedChange(0, 0, 0, float("nan"), float("nan"), 1.0)
    sums = _by_problem(changes, problems)
    better, worse = sum(s > 0 for s in sums), sum(s < 0 for s in sums)
    p_value = binomtest(better, better + worse).pvalue if better + worse else 1.0
    low = high = sum(sums) / of
    if len(set(sums)) > 1:
        low, high = DescrStatsW(sums).tconfint_mean(1 - CONFIDENCE)
        low, high = (float(bound) * len(sums) / of for bound in (low, high))
    return PairedChange(
        of, gained, lost, max(low, -1.0), min(high, 1.0), float(p_value)
    )


def mcnemar_p_value(before: Iterable[bool], after: Iterable[bool]) -> float:
    """McNemar's exact test over requests, repeats counted as independent.

    Stricter than the test over problems where no change is to be shown.
    """
    table = np.zeros((2, 2), int)
    for pair in zip(before, after, strict=True):
        table[int(pair[0]), int(pair[1])] += 1
    return float(min(mcnemar(table, exact=True).pvalue, 1.0))
