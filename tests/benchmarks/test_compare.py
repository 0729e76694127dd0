# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Runs that differ in one thing are compared on the requests they share."""

from dataclasses import asdict, replace

import pytest

from benchmarks.answer_reserve.clients import EngineOptions, Sampling
from benchmarks.answer_reserve.compare import compare
from benchmarks.answer_reserve.evaluate import Settings
from benchmarks.answer_reserve.records import Record, RecordStore

SETTINGS = Settings(
    engine=EngineOptions("scripted"),
    dataset="arithmetic",
    sampling=Sampling(40),
    reserves=[16],
    seeds=[0],
    batch_size=4,
)
RECORD = Record(
    reserve=16,
    seed=0,
    problem=0,
    outcome="wrong",
    answer="1",
    end="complete",
    finish_reason="stop",
    fired=True,
    honoured=True,
    closed_at=25,
    num_tokens=30,
    num_reasoning_tokens=25,
    empty_answer=False,
    digest="",
)


@pytest.fixture
def write(tmp_path):
    def write(name, records, settings=SETTINGS):
        folder = tmp_path / name
        folder.mkdir()
        settings.save(folder)
        RecordStore(folder).add(records)
        return folder

    return write


def test_requests_forced_in_every_run_are_paired_with_the_first_run(write):
    bare = write("bare", [replace(RECORD, problem=i) for i in range(8)])
    phrase = write(
        "phrase",
        [replace(RECORD, problem=i, outcome="right", num_tokens=32) for i in range(7)]
        # Not forced here, so left out of both.
        + [replace(RECORD, problem=7, fired=False)],
    )
    lines = compare({"bare": bare, "phrase": phrase}).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[2][:4] == ["16", "40%", "bare", "7"]
    assert cells[3][2:4] == ["phrase", "7"]
    assert cells[3][6:] == ["+100.0 points", "0.016", "7.0"]


def test_runs_of_other_requests_are_not_compared(write):
    bare = write("bare", [RECORD])
    other = replace(SETTINGS, sampling=Sampling(50))
    assert asdict(other) != asdict(SETTINGS)
    longer = write("longer", [RECORD], other)
    with pytest.raises(ValueError, match="sampling"):
        compare({"bare": bare, "longer": longer})
