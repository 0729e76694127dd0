# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Speeds are compared within the rounds of one run."""

import sys

import pytest

from benchmarks.answer_reserve.throughput import TimedRun, Worker, alternate, summary


def test_arms_alternate_after_a_round_that_is_not_counted():
    timed = []

    def arm(name, round):
        timed.append((name, round))
        return TimedRun(name, round, 100, 1.0, 0.1)

    runs = alternate({"unset": arm, "set": arm}, 3)
    assert timed == [
        ("warm-up", -1),
        ("warm-up", -1),
        *[("unset", 0), ("set", 0)],
        *[("set", 1), ("unset", 1)],
        *[("unset", 2), ("set", 2)],
    ]
    assert [(run.arm, run.round) for run in runs] == timed[2:]


def test_ratios_pair_the_runs_of_a_round():
    runs = [
        TimedRun("unset", 0, 100, 1.0, 0.1),
        TimedRun("set", 0, 100, 2.0, 0.1),
        # A slow round slows both.
        TimedRun("set", 1, 100, 10.0, 0.1),
        TimedRun("unset", 1, 100, 10.0, 0.1),
        TimedRun("unset", 2, 100, 1.0, 0.1),
        TimedRun("set", 2, 110, 1.0, 0.1),
    ]
    found = summary(runs)
    assert found["rounds"] == 3 and found["compared_to"] == "unset"
    assert found["tokens_per_second"]["unset"] == {
        "median": 100,
        "low": 10,
        "high": 100,
    }
    assert found["ratio"]["set"] == pytest.approx(
        {"median": 1.0, "low": 0.5, "high": 1.1}
    )


WORKER = """
import json, sys
settings, requests = (json.loads(sys.stdin.readline()) for _ in range(2))
print("loading", flush=True)
for line in sys.stdin:
    arm, round, reserve = json.loads(line)
    if reserve == settings["broken"]:
        sys.exit(3)
    run = {"arm": arm, "round": round, "num_tokens": len(requests)}
    run |= {"seconds": 0.5, "cpu_seconds": 0.1}
    print("RUN", json.dumps(run), flush=True)
"""


@pytest.fixture
def worker(tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{WORKER}")
    python.chmod(0o755)
    worker = Worker(str(python), {"broken": 7}, ([[], []], [1, 2]))
    yield worker
    worker.close()


def test_another_interpreter_is_timed_over_its_own_output(worker):
    assert worker.run("base", 0, None) == TimedRun("base", 0, 2, 0.5, 0.1)
    assert worker.run("base", 1, 16) == TimedRun("base", 1, 2, 0.5, 0.1)


def test_an_engine_that_ends_is_named(worker):
    with pytest.raises(RuntimeError, match="arm 'set' ended"):
        worker.run("set", 0, 7)
