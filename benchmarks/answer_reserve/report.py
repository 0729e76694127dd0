# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Figures and criteria of an evaluation, as JSON, Markdown and plots.

Every arm is measured on the same requests. A request without an answer counts as
not right, and none is left out except where an arm has not run it yet.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.answer_reserve.plots import draw_plots
from benchmarks.answer_reserve.records import ENDS, Record
from benchmarks.answer_reserve.stats import (
    PairedChange,
    Rate,
    mcnemar_p_value,
    paired_change,
    rate,
)
from benchmarks.answer_reserve.tasks import OUTCOMES

PASS, FAIL, NOT_APPLICABLE = "PASS", "FAIL", "NOT APPLICABLE"
MIN_TRUNCATED, MIN_GAIN = 0.15, 0.10
SIGNIFICANT = 0.05
MIN_ROUNDS = 3
NEGLIGIBLE = 0.01
"""A difference of speed that is not worth a name, as a share."""

Report = dict[str, Any]
Pairs = list[tuple[Record, Record]]
"""Of each request the baseline's record and the one with a reserve."""


def complete_requests(
    records: Iterable[Record], reserves: Sequence[int]
) -> dict[int | None, list[Record]]:
    """The records of the requests that every arm has run, by arm, in one order."""
    by_key = {record.key: record for record in records}
    arms: list[int | None] = [None, *reserves]
    requests = sorted({key[1:] for key in by_key})
    done = [r for r in requests if all((arm, *r) in by_key for arm in arms)]
    return {arm: [by_key[(arm, *request)] for request in done] for arm in arms}


def build_report(
    settings: dict[str, Any],
    run: dict[str, Any],
    records: Iterable[Record],
    planned: int,
) -> Report:
    """Measure an evaluation.

    Args:
        settings: What decided its requests.
        run: Machine, time and what was compared beside the requests.
        records: Of the requests.
        planned: Requests of each arm when the evaluation is complete.

    Raises:
        ValueError: If no request has run in every arm.

    """
    arms = complete_requests(records, settings["reserves"])
    baseline = arms.pop(None)
    if not baseline:
        raise ValueError("No request has run in every arm yet; resume the run.")
    report: Report = {
        "settings": settings,
        "run": run,
        "requests": {"measured": len(baseline), "planned": planned},
        "baseline": _arm(baseline),
        "reserves": [
            {"reserve": reserve, **_arm(arm), **_compare(baseline, arm)}
            for reserve, arm in arms.items()
        ],
    }
    report["criteria"] = list(_criteria(report))
    return report


def _rate(records: Sequence[Record], measure: Callable[[Record], bool]) -> Rate:
    return rate(map(measure, records), [record.problem for record in records])


def _figures(measured: Rate | PairedChange) -> Report:
    """The fields, None for a figure that no request has."""
    return {
        name: None if isinstance(value, float) and isnan(value) else value
        for name, value in asdict(measured).items()
    }


def _arm(records: Sequence[Record]) -> Report:
    ends = Counter(record.end for record in records)
    right = sum(record.is_right for record in records)
    tokens = sum(record.num_tokens for record in records)
    return {
        "answered": _figures(_rate(records, lambda r: r.is_answered)),
        "right": _figures(_rate(records, lambda r: r.is_right)),
        "truncated": _figures(_rate(records, lambda r: r.is_truncated)),
        "ends": {end: ends[end] for end in ENDS},
        "finish_reasons": dict(Counter(r.finish_reason for r in records)),
        "tokens_per_request": tokens / len(records),
        "tokens_per_right_answer": tokens / right if right else None,
        "reasoning_tokens_per_request": mean(r.num_reasoning_tokens for r in records),
    }


def _compare(baseline: Sequence[Record], arm: Sequence[Record]) -> Report:
    pairs = list(zip(baseline, arm, strict=True))
    forced = [pair for pair in pairs if pair[1].fired]
    quiet = [pair for pair in pairs if not pair[1].fired]
    fired = [after for _, after in forced]
    return {
        "fired": _figures(_rate(arm, lambda r: r.fired)),
        "honoured": _figures(_rate(fired, lambda r: r.honoured)),
        "empty_after_close": _figures(_rate(fired, lambda r: r.empty_answer)),
        "answered_change": _change(pairs, lambda r: r.is_answered),
        "right_change": _change(pairs, lambda r: r.is_right),
        "forced": {
            "unforced_right": _figures(_rate([b for b, _ in forced], _right)),
            "forced_right": _figures(_rate(fired, _right)),
            "right_change": _change(forced, _right),
            "flow": [
                {"unforced": before, "forced": after, "count": count}
                for (before, after), count in _flow(forced)
            ],
        },
        "never_fired": {
            "requests": len(quiet),
            "right_change": _change(quiet, _right),
            "mcnemar_p_value": mcnemar_p_value(
                [b.is_right for b, _ in quiet], [a.is_right for _, a in quiet]
            ),
            "identical": sum(b.digest == a.digest for b, a in quiet),
        },
    }


def _right(record: Record) -> bool:
    return record.is_right


def _change(pairs: Pairs, measure: Callable[[Record], bool]) -> Report:
    change: PairedChange = paired_change(
        [measure(before) for before, _ in pairs],
        [measure(after) for _, after in pairs],
        [before.problem for before, _ in pairs],
    )
    return _figures(change) | {"change": change.change if change.of else None}


def _flow(pairs: Pairs) -> list[tuple[tuple[str, str], int]]:
    counts = Counter((before.outcome, after.outcome) for before, after in pairs)
    return [((b, a), counts[b, a]) for b in OUTCOMES for a in OUTCOMES if counts[b, a]]


def _criteria(report: Report) -> Iterable[dict[str, str]]:
    def criterion(name: str, result: str, figure: str) -> dict[str, str]:
        return {"name": name, "result": result, "figure": figure}

    def judged(passed: bool) -> str:
        return PASS if passed else FAIL

    reserves = report["reserves"]
    name = (
        f"Extractable answers rise by {MIN_GAIN * 100:.0f} points or more at some "
        "reserve"
    )
    truncated = _share(report["baseline"]["truncated"])
    if truncated < MIN_TRUNCATED:
        figure = f"baseline truncation {truncated:.1%}, below {MIN_TRUNCATED:.0%}"
        yield criterion(name, NOT_APPLICABLE, figure)
    else:
        best = max(reserves, key=lambda each: each["answered_change"]["change"])
        gain = best["answered_change"]
        # Of several reserves the best was picked.
        p_value = min(gain["p_value"] * len(reserves), 1.0)
        figure = (
            f"reserve {best['reserve']}: {_points(gain)}, p={p_value:.2g} (Bonferroni "
            f"over {len(reserves)}), baseline truncation {truncated:.1%}"
        )
        passed = gain["change"] >= MIN_GAIN and p_value < SIGNIFICANT
        yield criterion(name, judged(passed), figure)

    name = "Forced requests are right more often than the same requests unforced"
    forced = [each for each in reserves if each["forced"]["right_change"]["of"]]
    if not forced:
        yield criterion(name, NOT_APPLICABLE, "no reserve fired")
    else:
        best = min(forced, key=lambda each: each["forced"]["right_change"]["p_value"])
        change = best["forced"]["right_change"]
        p_value = min(change["p_value"] * len(forced), 1.0)
        figure = (
            f"reserve {best['reserve']}: {_count(best['forced']['unforced_right'])} "
            f"unforced, {_count(best['forced']['forced_right'])} forced, "
            f"{_points(change)}, p={p_value:.2g} (Bonferroni over {len(forced)})"
        )
        passed = change["change"] > 0 and p_value < SIGNIFICANT
        yield criterion(name, judged(passed), figure)

    name = "Accuracy does not change where the reserve never fires"
    quiet = [each for each in reserves if each["never_fired"]["requests"]]
    if not quiet:
        yield criterion(name, NOT_APPLICABLE, "the reserve fired in every request")
    else:
        worst = min(quiet, key=lambda each: each["never_fired"]["mcnemar_p_value"])
        same = worst["never_fired"]
        figure = (
            f"lowest McNemar p={same['mcnemar_p_value']:.2g} at reserve "
            f"{worst['reserve']}; {same['identical']} of {same['requests']} outputs "
            "identical to the token"
        )
        yield criterion(name, judged(same["mcnemar_p_value"] >= SIGNIFICANT), figure)

    name = "A block open at the edge is closed at the edge"
    counts = [(each["honoured"]["count"], each["fired"]["count"]) for each in reserves]
    honoured, fired = map(sum, zip(*counts, strict=True))
    if not fired:
        yield criterion(name, NOT_APPLICABLE, "no reserve fired")
    else:
        figure = f"{honoured} of {fired}"
        yield criterion(name, judged(honoured == fired), figure)

    name = "Set and not firing, throughput does not change measurably"
    throughput = report["run"].get("throughput")
    if not throughput or throughput["rounds"] < MIN_ROUNDS:
        figure = f"fewer than {MIN_ROUNDS} rounds timed"
        yield criterion(name, NOT_APPLICABLE, figure)
    else:
        ratio = throughput["ratio"]["set"]
        figure = (
            f"{ratio['median']:.3f} of unset, {ratio['low']:.3f} to "
            f"{ratio['high']:.3f} over {throughput['rounds']} rounds"
        )
        passed = ratio["high"] >= 1 or ratio["median"] >= 1 - NEGLIGIBLE
        yield criterion(name, judged(passed), figure)

    name = "The close is at the same position with speculative decoding"
    drafted = report["run"].get("speculative")
    if not drafted or not drafted["fired"]:
        yield criterion(name, NOT_APPLICABLE, "not run, or the reserve did not fire")
    else:
        figure = (
            f"{drafted['honoured']} of {drafted['fired']} closed at the edge; of "
            f"{drafted['fired_in_both']} that fired in both, "
            f"{drafted['same_position']} at the same position; {drafted['identical']} "
            f"of {drafted['requests']} greedy outputs identical"
        )
        passed = (
            drafted["honoured"] == drafted["fired"]
            and drafted["same_position"] == drafted["fired_in_both"]
        )
        yield criterion(name, judged(passed), figure)


def _share(row: Report) -> float:
    return row["count"] / row["of"] if row["of"] else float("nan")


def _count(row: Report) -> str:
    return f"{row['count']} of {row['of']}"


def _percent(row: Report) -> str:
    """A rate with its count and interval."""
    if not row["of"]:
        return "none"
    interval = f"{row['low'] * 100:.1f} to {row['high'] * 100:.1f}"
    return f"{_share(row) * 100:.1f} % ({_count(row)}; {interval})"


def _points(change: Report) -> str:
    """A change with its interval."""
    if not change["of"]:
        return "none"
    interval = f"{change['low'] * 100:+.1f} to {change['high'] * 100:+.1f}"
    return f"{change['change'] * 100:+.1f} points ({interval})"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for readers of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write_report(report: Report, records: Iterable[Record], folder: Path) -> str:
    """Write `report.json`, `report.md` and the plots; return the Markdown."""
    text = json.dumps(report, indent=1, allow_nan=False)
    (folder / "report.json").write_text(text + "\n")
    arms = complete_requests(records, report["settings"]["reserves"])
    plots = draw_plots(report, arms, folder)
    markdown = to_markdown(report, plots)
    (folder / "report.md").write_text(markdown)
    return markdown


def to_markdown(report: Report, plots: dict[str, str]) -> str:
    """The report for readers.

    Args:
        report: The figures.
        plots: File name of each plot by its title.

    """
    requests = report["requests"]
    parts = [
        f"# Answer reserve: {_model_name(report)} on {_dataset_name(report)}",
        "## Criteria",
        markdown_table(
            ("criterion", "result", "figure"),
            ([c["name"], c["result"], c["figure"]] for c in report["criteria"]),
        ),
        "## Rates",
        (
            f"{requests['measured']} requests in each arm, of {requests['planned']} "
            "planned. Shares with counts and 95 % intervals; a request without an "
            "answer is not right."
        ),
        _rates_table(report),
        "## What changes",
        "Paired, on the same requests.",
        _changes_table(report),
        "## Where the reserve fired",
        _forced_table(report),
        "## Where it never fired",
        _quiet_table(report),
        *_speed(report),
        *(f"## {title}\n\n![{title}]({file})" for title, file in plots.items()),
        "## How it was run",
        _provenance(report),
    ]
    return "\n\n".join(parts) + "\n"


def _model_name(report: Report) -> str:
    return Path(report["settings"]["engine"]["model"]).name


def _dataset_name(report: Report) -> str:
    return report["settings"]["dataset"].partition(":")[0]


def _rates_table(report: Report) -> str:
    arms = [("unset", report["baseline"])]
    arms += [(str(each["reserve"]), each) for each in report["reserves"]]
    header = ("reserve", "extractable", "right", "truncated", *ENDS)
    rows = (
        [
            name,
            *(_percent(arm[measure]) for measure in ("answered", "right", "truncated")),
            *(arm["ends"][end] for end in ENDS),
        ]
        for name, arm in arms
    )
    tokens = (
        [
            name,
            f"{arm['tokens_per_request']:.1f}",
            f"{arm['reasoning_tokens_per_request']:.1f}",
            f"{arm['tokens_per_right_answer']:.1f}"
            if arm["right"]["count"]
            else "none",
            ", ".join(f"{k} {v}" for k, v in sorted(arm["finish_reasons"].items())),
        ]
        for name, arm in arms
        for per_right in [arm["tokens_per_right_answer"]]
    )
    return "\n\n".join(
        (
            markdown_table(header, rows),
            markdown_table(
                (
                    "reserve",
                    "tokens a request",
                    "of them reasoning",
                    "tokens a right answer",
                    "finish_reason",
                ),
                tokens,
            ),
        )
    )


def _changes_table(report: Report) -> str:
    return markdown_table(
        ("reserve", "extractable", "p", "right", "p"),
        (
            [
                each["reserve"],
                _points(each["answered_change"]),
                f"{each['answered_change']['p_value']:.2g}",
                _points(each["right_change"]),
                f"{each['right_change']['p_value']:.2g}",
            ]
            for each in report["reserves"]
        ),
    )


def _forced_table(report: Report) -> str:
    return markdown_table(
        (
            "reserve",
            "trigger rate",
            "right unforced",
            "right forced",
            "change",
            "p",
            "empty answers",
        ),
        (
            [
                each["reserve"],
                _percent(each["fired"]),
                _percent(each["forced"]["unforced_right"]),
                _percent(each["forced"]["forced_right"]),
                _points(each["forced"]["right_change"]),
                f"{each['forced']['right_change']['p_value']:.2g}",
                _count(each["empty_after_close"]),
            ]
            for each in report["reserves"]
        ),
    )


def _quiet_table(report: Report) -> str:
    return markdown_table(
        ("reserve", "requests", "identical", "right gained", "right lost", "McNemar p"),
        (
            [
                each["reserve"],
                quiet["requests"],
                quiet["identical"],
                quiet["right_change"]["gained"],
                quiet["right_change"]["lost"],
                f"{quiet['mcnemar_p_value']:.2g}",
            ]
            for each in report["reserves"]
            for quiet in [each["never_fired"]]
        ),
    )


def _speed(report: Report) -> list[str]:
    throughput = report["run"].get("throughput")
    if not throughput:
        return []
    # A server's processor time is not seen from here.
    measures = {"tokens_per_second": "{:.0f}", "cpu_ms_per_token": "{:.3f}"}
    if report["settings"]["server"]:
        del measures["cpu_ms_per_token"]
    rows = (
        [
            arm,
            *(
                form.format(throughput[measure][arm][key])
                for measure, form in measures.items()
                for key in ("median", "low", "high")
            ),
        ]
        for arm in throughput["tokens_per_second"]
    )
    header = ["arm"]
    for name in ("tokens per second", "processor ms a token")[: len(measures)]:
        header += [f"{name}, median", "lowest", "highest"]
    return [
        "## Throughput",
        (
            f"{throughput['requests']} requests in which reserve "
            f"{throughput['reserve']} never fires; {throughput['rounds']} rounds, arms "
            "in alternating order."
        ),
        markdown_table(header, rows),
    ]


def _provenance(report: Report) -> str:
    settings, run = report["settings"], report["run"]
    hashes, machine = settings["model_sha256"], run["machine"]
    command = run["command"].replace("\n", "\\n")
    rows = {
        "model": _model_name(report),
        "sha256": ", ".join(f"{file} {h}" for file, h in hashes.items()) or "not local",
        "dataset": f"{_dataset_name(report)}, limit {settings['limit']}, "
        f"sha256 {settings['dataset_sha256'] or 'none: made from a seed'}",
        "sampling": json.dumps(settings["sampling"]),
        "seeds": settings["seeds"],
        "requests at once": settings["batch_size"],
        "reasoning end": json.dumps(settings["engine"]["reasoning_end_str"])
        if settings["engine"]["reasoning_end_str"]
        else "the parser's own",
        "machine": ", ".join(f"{what} {which}" for what, which in machine.items()),
        "command": f"`evaluate {command}`",
        "begun": f"{run['begun']} UTC",
        "time": f"{run['seconds'] / 60:.1f} minutes",
    }
    return markdown_table(("", ""), rows.items())
