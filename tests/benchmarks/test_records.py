# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Requests are judged from their token ids, and no record is lost."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.answer_reserve.clients import Completion
from benchmarks.answer_reserve.records import (
    Judge,
    RecordStore,
    pack_records,
    read_records,
)

from .scripted import CLOSE, PROMPT, THINK, CharTokenizer, markers, task

X = ord("x")
ANSWER = [*map(ord, "Answer: 0")]
MAX_TOKENS = 40


def judge(tokens, finish_reason="stop", reserve=16, forced_end=None, context=1000):
    client = SimpleNamespace(
        reasoning_config=markers(forced_end),
        tokenizer=CharTokenizer(),
        max_model_len=context,
    )
    completion = Completion(PROMPT, tokens, finish_reason)
    return Judge(task(1), client, MAX_TOKENS).record(completion, reserve, 0, 0)


def test_a_block_open_at_the_edge_was_closed_by_the_reserve():
    record = judge([THINK, *[X] * 23, CLOSE, *ANSWER])
    assert record.fired and record.honoured
    assert record.closed_at == 25
    assert record.outcome == "right" and record.end == "complete"


def test_a_block_the_model_closed_on_the_last_free_token_was_not_forced():
    record = judge([THINK, *[X] * 22, CLOSE, *ANSWER])
    assert not record.fired and record.closed_at == 24


def test_a_block_left_open_past_the_edge_counts_as_not_honoured():
    record = judge([THINK, *[X] * 39], "length")
    assert record.fired and not record.honoured
    assert record.outcome == "unanswered" and record.end == "cut in reasoning"


def test_a_block_opened_after_the_edge_was_closed_by_the_reserve():
    record = judge([X] * 30 + [THINK, CLOSE, *ANSWER])
    assert record.fired and record.honoured


def test_an_end_inside_the_block_before_the_edge_fires_nothing():
    record = judge([THINK, X, X])
    assert not record.fired
    assert record.end == "ended in reasoning" and record.closed_at is None


def test_the_edge_is_counted_from_the_end_of_the_context():
    tokens = [THINK, *[X] * 3, CLOSE, *ANSWER]
    assert judge(tokens, context=len(PROMPT) + 20).fired
    assert not judge(tokens).fired


def test_nothing_fires_without_a_reserve():
    record = judge([THINK, *[X] * 39], "length", reserve=None)
    assert not record.fired and not record.honoured
    assert record.is_truncated


def test_a_forced_opener_of_the_answer_belongs_to_the_answer():
    opener = [*map(ord, "Answer: ")]
    tokens = [THINK, *[X] * 23, CLOSE, *opener, ord("0")]
    record = judge(tokens, forced_end=[CLOSE, *opener])
    assert record.honoured and record.outcome == "right"


def test_a_phrase_before_the_close_does_not():
    phrase = [*map(ord, "Answer: 0 ")]
    tokens = [THINK, *[X] * 23, *phrase, CLOSE, ord("7")]
    record = judge(tokens, forced_end=[*phrase, CLOSE])
    assert record.honoured and record.outcome == "unanswered"


@pytest.mark.parametrize(
    ("after", "empty"), [([], True), ([10], True), (ANSWER, False)]
)
def test_an_answer_without_words_is_empty(after, empty):
    assert judge([THINK, X, CLOSE, *after]).empty_answer is empty


def test_what_stands_inside_the_reasoning_is_no_answer():
    assert judge([THINK, *ANSWER, CLOSE, X]).outcome == "unanswered"


def test_a_number_that_the_limit_may_have_cut_is_no_answer():
    tokens = [THINK, X, CLOSE, *ANSWER]
    assert judge(tokens).outcome == "right"
    assert judge(tokens, "length").outcome == "unanswered"
    assert judge([*tokens, ord("\n")], "length").outcome == "right"


def test_records_come_back_as_they_were_written(tmp_path):
    record = judge([THINK, X, CLOSE, *ANSWER])
    others = [replace(record, problem=i) for i in range(3)]
    RecordStore(tmp_path).add(others)
    assert read_records(tmp_path) == others
    assert (16, 0, 2) in RecordStore(tmp_path)
    assert (None, 0, 2) not in RecordStore(tmp_path)


def test_a_line_cut_by_an_interruption_is_written_again(tmp_path):
    record = judge([THINK, X, CLOSE, *ANSWER])
    RecordStore(tmp_path).add([replace(record, problem=i) for i in range(2)])
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    store = RecordStore(tmp_path)
    assert record.key in store and (16, 0, 1) not in store
    store.add([replace(record, problem=1)])
    assert [r.problem for r in read_records(tmp_path)] == [0, 1]


def test_packed_records_are_read_without_their_token_ids(tmp_path):
    record = judge([THINK, X, CLOSE, *ANSWER])
    RecordStore(tmp_path).add([record])
    first = pack_records(tmp_path).read_bytes()
    assert pack_records(tmp_path).read_bytes() == first
    (tmp_path / "records.jsonl").unlink()
    assert read_records(tmp_path) == [replace(record, token_ids=None)]


def test_each_record_is_one_line_of_json(tmp_path):
    RecordStore(tmp_path).add([judge([THINK, X, CLOSE, *ANSWER])])
    (line,) = (tmp_path / "records.jsonl").read_text().splitlines()
    assert json.loads(line)["token_ids"][:3] == [THINK, X, CLOSE]
