# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Datasets, and what they refuse."""

import json

import pytest

from benchmarks.answer_reserve.tasks import load_task


@pytest.fixture
def dataset(tmp_path):
    def write(*rows):
        path = tmp_path / "problems.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_a_file_is_read_up_to_the_limit(dataset):
    path = dataset(*({"question": f"q{i}", "answer": str(i)} for i in range(4)))
    assert len(load_task(f"gsm8k:{path}").problems) == 4
    task = load_task(f"aime:{path}", limit=2)
    assert [problem.answer for problem in task.problems] == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (r"\boxed{1234.0}", "right"),
        ("#### 1,234", "right"),
        (r"\boxed{1235}", "wrong"),
        ("1234", "unanswered"),
    ],
)
def test_answers_are_compared_as_numbers(dataset, text, outcome):
    task = load_task(f"gsm8k:{dataset({'question': 'q', 'answer': '1,234'})}")
    assert task.outcome(task.extract(text), task.problems[0]) == outcome


def test_arithmetic_problems_are_the_same_each_time():
    task = load_task("arithmetic", limit=5)
    assert task.problems == load_task("arithmetic", limit=5).problems
    assert len({problem.question for problem in task.problems}) == 5


def test_worked_examples_close_their_reasoning_before_the_answer(dataset):
    path = dataset({"question": "What is 1+1?", "answer": "2"})
    task = load_task(f"gsm8k:{path}", prompt="examples")
    conversation = task.prompt(task.problems[0].question)
    assert [turn["role"] for turn in conversation] == (
        ["system"] + ["user", "assistant"] * 2 + ["user"]
    )
    for turn in conversation[2:-1:2]:
        reasoning, answer = turn["content"].split("</think>")
        assert reasoning.startswith("<think>") and task.extract(answer)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gsm8k", ["gsm8k:FILE", "'gsm8k'"]),
        ("trivia:x", ["trivia:x"]),
        ("arithmetic:x", ["arithmetic:x"]),
    ],
)
def test_an_unknown_dataset_is_refused(name, words):
    with pytest.raises(ValueError) as error:
        load_task(name)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q"}, ["line 1", "answer"]),
        ({"question": "q", "answer": "many words"}, ["line 1", "many words"]),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused(dataset, row, words):
    with pytest.raises(ValueError) as error:
        load_task(f"gsm8k:{dataset(row)}")
    assert all(word in str(error.value) for word in words)


def test_other_prompts_and_limits_are_refused(dataset):
    with pytest.raises(ValueError, match="prompt must be one of"):
        load_task("arithmetic", prompt="loud")
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        load_task("arithmetic", limit=0)
    with pytest.raises(ValueError, match="holds no problems"):
        load_task(f"gsm8k:{dataset()}")
