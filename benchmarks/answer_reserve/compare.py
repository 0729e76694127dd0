# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Put evaluations of the same requests side by side: what makes forced answers better?

    python -m benchmarks.answer_reserve.compare NAME=RESULTS ... --out FILE

The runs differ in one thing, such as the wording of the forced close. Requests
that were forced in every run at a reserve are compared in pairs with the first run.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.answer_reserve.evaluate import Settings
from benchmarks.answer_reserve.records import Record, read_records
from benchmarks.answer_reserve.report import markdown_table
from benchmarks.answer_reserve.stats import paired_change, rate

Forced = dict[tuple[int, int], Record]
"""Requests in which a reserve fired, by seed and problem."""


def forced_requests(records: Sequence[Record], reserve: int) -> Forced:
    """The requests in which a reserve fired."""
    return {
        (record.seed, record.problem): record
        for record in records
        if record.reserve == reserve and record.fired
    }


def compare(runs: dict[str, Path]) -> str:
    """Compare runs at each reserve that all of them have.

    Args:
        runs: Folder of each evaluation by its name; the first is compared to.

    Returns:
        A Markdown table.

    Raises:
        ValueError: If the runs did not ask the same.

    """
    settings = {name: Settings.load(folder) for name, folder in runs.items()}
    first, *others = settings
    for name in others:
        for field in ("dataset_sha256", "sampling", "model_sha256", "prompt"):
            values = [getattr(settings[each], field) for each in (first, name)]
            if values[0] != values[1]:
                raise ValueError(
                    f"{first} has {field}={values[0]!r} and {name} {values[1]!r}; only "
                    "runs of the same requests can be compared."
                )
    shared = set.intersection(*(set(each.reserves) for each in settings.values()))
    records = {name: read_records(folder) for name, folder in runs.items()}
    rows = [
        row
        for reserve in sorted(shared)
        for row in _rows({n: forced_requests(r, reserve) for n, r in records.items()})
    ]
    max_tokens = settings[first].sampling.max_tokens
    header = ["reserve", "of max_tokens", "run", "forced", "extractable", "right"]
    header += [f"right against {first}", "p", "answer tokens"]
    return markdown_table(
        header,
        ([row[0], f"{row[0] / max_tokens:.0%}", *row[1:]] for row in rows),
    )


def _rows(forced: dict[str, Forced]) -> list[list]:
    common = sorted(set.intersection(*map(set, forced.values())))
    first = next(iter(forced))
    return [
        _row(name, [run[key] for key in common], [forced[first][key] for key in common])
        for name, run in forced.items()
        if common
    ]


def _row(name: str, run: list[Record], first: list[Record]) -> list:
    problems = [record.problem for record in run]
    right = [record.is_right for record in run]
    answered = rate([record.is_answered for record in run], problems)
    correct = rate(right, problems)
    change = paired_change([record.is_right for record in first], right, problems)
    after = [r.num_tokens - r.closed_at for r in run if r.closed_at is not None]
    return [
        run[0].reserve,
        name,
        len(run),
        f"{answered.value * 100:.1f} %",
        (
            f"{correct.value * 100:.1f} % ({correct.count}; {correct.low * 100:.0f} to "
            f"{correct.high * 100:.0f})"
        ),
        f"{change.change * 100:+.1f} points",
        f"{change.p_value:.2g}",
        f"{sum(after) / len(run):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=RESULTS")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runs = dict(run.split("=", 1) for run in args.runs)
    table = compare({name: Path(folder) for name, folder in runs.items()})
    if args.out:
        args.out.write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
