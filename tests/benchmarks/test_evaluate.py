# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An evaluation from the command line to its report, with a scripted model."""

import json
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks.answer_reserve import evaluate
from benchmarks.answer_reserve.records import read_records
from benchmarks.answer_reserve.report import to_markdown

from . import scripted

NUM_PROBLEMS = 12
OPTIONS = ["--model", "scripted", "--max-tokens", "40", "--batch-size", "5"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command with a scripted model; returns its status and the model."""

    def load_task(dataset, limit, prompt):
        return scripted.task(limit or NUM_PROBLEMS)

    monkeypatch.setattr(evaluate, "load_task", load_task)

    def run(*arguments, **model):
        client = scripted.ScriptedClient(**model)

        @contextmanager
        def open_client(*_):
            yield client

        monkeypatch.setattr(evaluate, "open_client", open_client)
        return evaluate.main([*OPTIONS, "--out", str(tmp_path), *arguments]), client

    runner: Any = run
    runner.out = tmp_path
    return runner


def report(folder):
    return json.loads((folder / "report.json").read_text())


def results(folder):
    return {c["name"]: c["result"] for c in report(folder)["criteria"]}


def test_every_arm_runs_the_same_batches_with_the_same_seeds(run):
    status, client = run("--reserve", "16", "20", "--seeds", "0", "1")
    assert status == 0
    by_arm = {
        arm: [call[1:] for call in client.calls if call[0] == arm]
        for arm in (None, 16, 20)
    }
    assert by_arm[None] == by_arm[16] == by_arm[20]
    assert [size for size, _ in by_arm[None]] == [5, 5, 2] * 2
    # No two requests of an arm share a seed, and arms take turns in going first.
    seeds = [seed for _, batch in by_arm[None] for seed in batch]
    assert len(set(seeds)) == 2 * NUM_PROBLEMS
    assert {call[0] for call in client.calls[::3]} == {None, 16, 20}


def test_the_report_counts_what_the_reserve_did(run):
    run("--reserve", "16")
    found = report(run.out)
    # Problem i thinks for 10 + 5 i tokens of 40, closes, and states its answer in
    # the next 9 or 10. Problem 4 does so with its last token: it could be cut.
    assert found["baseline"]["answered"]["count"] == 4
    assert found["baseline"]["ends"] == {
        "complete": 4,
        "cut in answer": 2,
        "cut in reasoning": 6,
        "ended in reasoning": 0,
    }
    (arm,) = found["reserves"]
    assert arm["fired"]["count"] == arm["honoured"]["count"] == 9
    assert arm["right"]["count"] == 12
    assert arm["forced"]["flow"] == [
        {"unforced": "right", "forced": "right", "count": 1},
        {"unforced": "unanswered", "forced": "right", "count": 8},
    ]
    assert arm["never_fired"]["identical"] == arm["never_fired"]["requests"] == 3


def test_criteria_pass_where_the_reserve_helps(run):
    status, _ = run("--reserve", "16", "--check")
    assert status == 0
    assert list(results(run.out).values()) == [
        *["PASS"] * 4,
        *["NOT APPLICABLE"] * 2,
    ]


def test_check_fails_where_blocks_stay_open_at_the_edge(run, capsys):
    status, _ = run("--reserve", "16", "--check", honours=False)
    assert status == 1
    failed = [name for name, result in results(run.out).items() if result == "FAIL"]
    assert "A block open at the edge is closed at the edge" in failed
    message = capsys.readouterr().err
    assert all(name in message for name in failed)


def test_nothing_is_claimed_where_the_baseline_is_not_truncated(run):
    status, _ = run("--reserve", "16", "--limit", "2", "--check")
    assert status == 0
    assert list(results(run.out).values())[:2] == ["NOT APPLICABLE"] * 2


def test_an_interrupted_run_goes_on_where_it_stopped(run):
    with pytest.raises(KeyboardInterrupt):
        run("--reserve", "16", interrupt_after=4)
    # The report counts requests that ran in both arms.
    status, client = run("--reserve", "16", "--report-only")
    assert status == 0 and client.calls == []
    assert report(run.out)["requests"] == {"measured": 10, "planned": NUM_PROBLEMS}
    status, client = run("--reserve", "16")
    assert status == 0 and len(client.calls) == 2
    assert report(run.out)["requests"]["measured"] == NUM_PROBLEMS
    status, client = run("--reserve", "16")
    assert client.calls == []


def test_a_reserve_can_be_added_to_a_finished_run(run):
    run("--reserve", "16")
    status, client = run("--reserve", "16", "20")
    assert status == 0 and {call[0] for call in client.calls} == {20}
    assert [arm["reserve"] for arm in report(run.out)["reserves"]] == [16, 20]


def test_other_settings_do_not_mix_with_a_finished_run(run, capsys):
    run("--reserve", "16")
    status, client = run("--reserve", "16", "--temperature", "1")
    assert status == 2 and client.calls == []
    assert "sampling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reserve", "40"], ["reserve", "max_tokens=40", "40"]),
        (["--reserve", "-1"], ["reserve", "-1"]),
        (["--reserve", "16", "--temperature", "0", "--seeds", "1", "2"], ["seeds"]),
    ],
)
def test_settings_that_cannot_work_are_refused(run, capsys, arguments, words):
    status, client = run(*arguments)
    assert status == 2 and client.calls == []
    message = capsys.readouterr().err
    assert all(word in message for word in words)


def test_throughput_is_timed_in_alternating_order_on_quiet_requests(run):
    status, client = run("--reserve", "16", "--throughput-rounds", "3")
    assert status == 0
    timed = [call[0] for call in client.calls[-6:]]
    assert timed == [None, 16, 16, None, None, 16]
    assert {call[1] for call in client.calls[-6:]} == {3}
    throughput = report(run.out)["run"]["throughput"]
    assert throughput["rounds"] == 3 and len(throughput["runs"]) == 6


def test_where_the_reserve_closes_is_compared_with_speculative_decoding(run):
    status, _ = run("--reserve", "16", "--speculative-config", "{}")
    assert status == 0
    name = "The close is at the same position with speculative decoding"
    assert results(run.out)[name] == "PASS"
    assert report(run.out)["run"]["speculative"]["same_position"] == 9


def test_the_report_can_be_made_again_from_packed_records(run):
    run("--reserve", "16", "--pack")
    before = report(run.out)
    (run.out / "records.jsonl").unlink()
    run("--reserve", "16", "--report-only")
    assert report(run.out) == before
    assert len(read_records(run.out)) == 2 * NUM_PROBLEMS


def test_the_readable_report_names_each_figure_with_its_count(run, capsys):
    run("--reserve", "16")
    text = (run.out / "report.md").read_text()
    assert text in capsys.readouterr().out + "\n"
    assert text == to_markdown(
        report(run.out),
        {
            "Rates by reserve": "rates.png",
            "Length of the reasoning": "reasoning_length.png",
            "From unforced to forced": "flow.png",
        },
    )
    assert "12 requests in each arm, of 12 planned" in text
    assert "100.0 % (12 of 12" in text
    for plot in ("rates.png", "reasoning_length.png", "flow.png"):
        assert plot in text
        assert (run.out / plot).read_bytes().startswith(b"\x89PNG")
