# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The workloads: a task is data, a prompt, an answer extractor and a metric."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.answer_reserve.extractors import (
    aime_answer,
    arithmetic_answer,
    gsm8k_answer,
    number,
)
from benchmarks.models.tiny_reasoner.problems import held_out

Message = dict[str, str]
Outcome = Literal["right", "wrong", "unanswered"]

OUTCOMES: tuple[Outcome, ...] = ("right", "wrong", "unanswered")

BOXED_SYSTEM = (
    "Solve the problem. Reason step by step inside <think> and </think>. After "
    "</think> give only the final answer in \\boxed{}."
)
EXAMPLES = (
    (
        (
            "A shop sells pens in packs of 6. Nora buys 4 packs and gives away 9 pens. "
            "How many pens does she have left?"
        ),
        "4 packs hold 4 * 6 = 24 pens. After giving away 9 she has 24 - 9 = 15 pens.",
        "15",
    ),
    (
        "What is the remainder when $7^4$ is divided by 100?",
        "7^2 = 49, so 7^4 = 49^2 = 2401. The remainder of 2401 divided by 100 is 1.",
        "1",
    ),
)


@dataclass(frozen=True)
class Problem:
    question: str
    answer: str


@dataclass(frozen=True)
class Task:
    """What is asked, and how an answer is read and judged."""

    name: str
    problems: list[Problem]
    extract: Callable[[str], str | None]
    """Takes the text after the reasoning and returns the stated answer."""
    prompt: Callable[[str], list[Message]]
    """Makes the conversation that asks a question."""
    max_tokens: int
    """Output tokens of a request where the command line names none."""
    reserves: tuple[int, ...]
    """Reserves to sweep where the command line names none, in tokens."""

    def outcome(self, stated: str | None, problem: Problem) -> Outcome:
        """Judge an extracted answer; a missing one scores nothing."""
        if stated is None:
            return "unanswered"
        return "right" if number(stated) == number(problem.answer) else "wrong"


def ask(question: str) -> list[Message]:
    """The bare question, for a model that reasons by itself."""
    return [{"role": "user", "content": question}]


def ask_boxed(question: str) -> list[Message]:
    r"""The question with the request that reasoning models expect."""
    request = "Please reason step by step, and put your final answer within \\boxed{}."
    return ask(f"{question}\n\n{request}")


def ask_with_examples(question: str) -> list[Message]:
    """The question after two worked examples, for a model without markers."""
    turns = [{"role": "system", "content": BOXED_SYSTEM}]
    for example, reasoning, answer in EXAMPLES:
        turns += ask(example)
        worked = f"<think>\n{reasoning}\n</think>\n\n\\boxed{{{answer}}}"
        turns.append({"role": "assistant", "content": worked})
    return turns + ask(question)


PROMPTS = {"plain": ask, "boxed": ask_boxed, "examples": ask_with_examples}

SWEEP = (128, 256, 512, 1024)


def load_task(
    dataset: str, limit: int | None = None, prompt: str | None = None
) -> Task:
    """Make the task that a `--dataset` names.

    Args:
        dataset: `arithmetic`, `gsm8k:FILE` or `aime:FILE`; a file holds one JSON
            object a line with `question` and `answer`.
        limit: How many problems, from the first; all of a file, or 1,000, if None.
        prompt: One of `PROMPTS`; the task's own if None.

    Raises:
        ValueError: If the dataset or the prompt is not known, or the file does
            not hold what it should.

    """
    name, _, file = dataset.partition(":")
    if prompt is not None and prompt not in PROMPTS:
        raise ValueError(f"prompt must be one of {sorted(PROMPTS)}, got {prompt!r}.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}.")
    if name == "arithmetic" and not file:
        made = held_out(1000 if limit is None else limit)
        problems = [Problem(each.question, each.answer) for each in made]
        ask_for = PROMPTS[prompt or "plain"]
        return Task(
            name, problems, arithmetic_answer, ask_for, 128, (12, 16, 24, 32, 64)
        )
    if name in ("gsm8k", "aime") and file:
        problems = read_problems(Path(file))[:limit]
        extract = gsm8k_answer if name == "gsm8k" else aime_answer
        return Task(name, problems, extract, PROMPTS[prompt or "boxed"], 2048, SWEEP)
    raise ValueError(
        f"dataset must be arithmetic, gsm8k:FILE or aime:FILE, got {dataset!r}."
    )


def read_problems(path: Path) -> list[Problem]:
    """Read problems from a JSONL file.

    Raises:
        ValueError: If a line lacks a field or its answer is no number.

    """
    problems = []
    for line_number, line in enumerate(path.read_text().splitlines(), 1):
        row = json.loads(line)
        try:
            problem = Problem(row["question"], row["answer"])
        except KeyError as missing:
            raise ValueError(f"{path}, line {line_number}: no {missing}.") from None
        if number(problem.answer) is None:
            raise ValueError(
                f"{path}, line {line_number}: the answer {problem.answer!r} is no "
                "number. Reduce it to the final number."
            )
        problems.append(problem)
    if not problems:
        raise ValueError(f"{path} holds no problems.")
    return problems
