# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The plots of a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from benchmarks.answer_reserve.records import Record
from benchmarks.answer_reserve.tasks import OUTCOMES

COLORS = {"right": "#2a9d5c", "wrong": "#d9822b", "unanswered": "#8a8f98"}
RATES = {
    "answered": ("extractable", "#2f6fb7", "o"),
    "right": ("right", COLORS["right"], "s"),
    "truncated": ("truncated", "#c23b3b", "^"),
    "fired": ("reserve fired", "#7a4fb5", "D"),
}
DPI = 110
MIN_LABELLED = 0.03
"""Share of a bar that leaves room for its number."""


def draw_plots(
    report: Mapping[str, Any], arms: Mapping[int | None, list[Record]], folder: Path
) -> dict[str, str]:
    """Draw the plots of a report.

    Args:
        report: The figures.
        arms: Records by reserve, None for the baseline, all of the same requests.
        folder: Where the files go.

    Returns:
        The file name of each plot by its title.

    """
    matplotlib.rcParams["svg.hashsalt"] = "answer_reserve"
    return {
        "Rates by reserve": _save(_rates(report), folder / "rates.png"),
        "Length of the reasoning": _save(
            _lengths(report, arms[None]), folder / "reasoning_length.png"
        ),
        "From unforced to forced": _save(_flows(report), folder / "flow.png"),
    }


def _save(figure: Figure, path: Path) -> str:
    figure.savefig(path, dpi=DPI)
    return path.name


def _rates(report: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    reserves = [each["reserve"] for each in report["reserves"]]
    # Even steps: reserves are swept in powers of two. The baseline comes first.
    names = ["unset", *map(str, reserves)]
    for position, (measure, (label, color, marker)) in enumerate(RATES.items()):
        rows = [report["baseline"].get(measure)]
        rows += [each[measure] for each in report["reserves"]]
        points = [(x, row) for x, row in enumerate(rows) if row is not None]
        values = [100 * row["count"] / row["of"] for _, row in points]
        # An interval may touch its value, with the last digits on the other side.
        errors = [
            [max(v - 100 * row["low"], 0) for v, (_, row) in zip(values, points)],
            [max(100 * row["high"] - v, 0) for v, (_, row) in zip(values, points)],
        ]
        shift = (position - 1.5) * 0.04
        axes.errorbar(
            [x + shift for x, _ in points],
            values,
            errors,
            label=label,
            color=color,
            marker=marker,
            capsize=3,
        )
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("reasoning_answer_reserve (tokens)")
    axes.set_ylabel("share of requests (%), 95 % interval")
    axes.set_ylim(-3, 103)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def _lengths(report: Mapping[str, Any], baseline: Sequence[Record]) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    limit = report["settings"]["sampling"]["max_tokens"]
    closed = [r.num_reasoning_tokens for r in baseline if r.closed_at is not None]
    open_ = [r.num_reasoning_tokens for r in baseline if r.closed_at is None]
    axes.hist(
        [closed, open_],
        bins=40,
        range=(0, limit),
        stacked=True,
        color=[RATES["answered"][1], COLORS["unanswered"]],
        label=["closed by the model", "never closed"],
    )
    for index, each in enumerate(report["reserves"]):
        axes.axvline(
            limit - each["reserve"],
            color=RATES["fired"][1],
            alpha=0.8,
            linestyle="--",
            label="edge of a reserve" if index == 0 else None,
        )
        axes.annotate(
            str(each["reserve"]),
            (limit - each["reserve"], 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
            color=RATES["fired"][1],
            fontsize=8,
        )
    axes.set_xlabel("output tokens before the reasoning closed, reserve unset")
    axes.set_ylabel("requests")
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def _flows(report: Mapping[str, Any]) -> Figure:
    arms = report["reserves"]
    figure = Figure(figsize=(max(2.2 * len(arms), 4.4), 4.2), layout="constrained")
    for axes, each in zip(figure.subplots(1, len(arms), squeeze=False)[0], arms):
        counts = {
            (row["unforced"], row["forced"]): row["count"]
            for row in each["forced"]["flow"]
        }
        _flow(axes, counts)
        axes.set_title(f"reserve {each['reserve']}\n{sum(counts.values())} forced")
    handles = [
        matplotlib.patches.Patch(color=color, label=outcome)
        for outcome, color in COLORS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _flow(axes: Axes, counts: Mapping[tuple[str, str], int]) -> None:
    """Two stacked bars, joined by a band for each pair of outcomes."""
    total = sum(counts.values())
    axes.set_xlim(-0.15, 1.15)
    axes.set_ylim(max(total, 1), 0)
    axes.set_xticks([0, 1], ["unset", "set"])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    tops = [_stack(axes, counts, side) for side in (0, 1)]
    for before in OUTCOMES:
        for after in OUTCOMES:
            count = counts.get((before, after), 0)
            left, right = tops[0][before], tops[1][after]
            if count:
                axes.add_patch(_band(left, right, count, COLORS[after]))
            tops[0][before] += count
            tops[1][after] += count


def _stack(
    axes: Axes, counts: Mapping[tuple[str, str], int], side: int
) -> dict[str, int]:
    """Draw one bar; return where each outcome begins in it."""
    top = 0
    begins: dict[str, int] = {}
    for outcome in OUTCOMES:
        begins[outcome] = top
        height = sum(n for pair, n in counts.items() if pair[side] == outcome)
        if height:
            axes.bar(side, height, 0.2, bottom=top, color=COLORS[outcome])
        if height > MIN_LABELLED * sum(counts.values()):
            axes.text(side, top + height / 2, str(height), ha="center", va="center")
        top += height
    return begins


def _band(left: int, right: int, height: int, color: str) -> PathPatch:
    begin, middle, end = 0.1, 0.5, 0.9
    points = [
        (begin, left),
        (middle, left),
        (middle, right),
        (end, right),
        (end, right + height),
        (middle, right + height),
        (middle, left + height),
        (begin, left + height),
        (begin, left),
    ]
    curve = [Outline.CURVE4] * 3
    codes = [Outline.MOVETO, *curve, Outline.LINETO, *curve, Outline.CLOSEPOLY]
    return PathPatch(Outline(points, codes), color=color, alpha=0.4, linewidth=0)
