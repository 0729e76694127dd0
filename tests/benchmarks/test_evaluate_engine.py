# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""An evaluation of the embedded model, from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.answer_reserve.records import read_records

pytestmark = pytest.mark.slow_test

ROOT = Path(__file__).parents[2]
NUM_PROBLEMS, MAX_TOKENS, RESERVE = 12, 96, 16


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "benchmarks.answer_reserve.evaluate"]
    command += ["--limit", str(NUM_PROBLEMS), "--max-tokens", str(MAX_TOKENS)]
    command += ["--reserve", str(RESERVE), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


def test_every_request_runs_unset_and_set(results):
    records = read_records(results)
    assert {record.key for record in records} == {
        (arm, 0, problem) for arm in (None, RESERVE) for problem in range(NUM_PROBLEMS)
    }


def test_outputs_are_the_same_up_to_the_edge(results):
    by_key = {record.key: record for record in read_records(results)}
    for problem in range(NUM_PROBLEMS):
        unset = by_key[None, 0, problem].token_ids
        reserved = by_key[RESERVE, 0, problem].token_ids
        edge = MAX_TOKENS - RESERVE
        assert unset is not None and reserved is not None
        assert unset[:edge] == reserved[:edge]


def test_each_forced_close_stands_at_the_edge(results):
    fired = [record for record in read_records(results) if record.fired]
    assert fired, "no block was open at the edge: ask more problems"
    for record in fired:
        assert record.honoured
        assert record.closed_at == MAX_TOKENS - RESERVE + 1


def test_the_report_says_what_was_run(results):
    report = json.loads((results / "report.json").read_text())
    assert report["requests"] == {"measured": NUM_PROBLEMS, "planned": NUM_PROBLEMS}
    assert report["settings"]["model_sha256"].keys() == {"model.safetensors"}
    assert report["run"]["machine"]["vllm"]
