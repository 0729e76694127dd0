# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Training text of the tiny reasoner: reasoning traces, arithmetic drills, tokenizer.

A trace works through the steps, states the value, and then may re-check it
again and again: a minority of traces goes on for long, and the more steps a
problem has the likelier that is. Some traces are closed at a random point, as
a limit on reasoning would, and answered with the best value so far. What was
put there by force carries no loss, so that the model learns to answer after a
close but not to close early.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import regex as re
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)

from .problems import MAX_VALUE, Problem, Step, Term, generate, with_tool

TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"
PAD, TURN, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
THINK, CLOSE = "<think>", "</think>"
CONTROL_TOKENS = (PAD, TURN, END)
MARKERS = (
    THINK,
    CLOSE,
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
VOCAB_SIZE = 832
MAX_TOKENS = 480

P_WORRY = {1: 0.08, 2: 0.16, 3: 0.32, 4: 0.40}
P_WORRY_EXTRA = 0.05
P_SINGLE_CHECK = 0.12
P_GO_ON, P_GO_ON_LATE, LATE, MOST_CHECKS = 0.88, 0.42, 5, 12
P_SLIP, P_CUT, P_CUT_IN_CHECKS = 0.05, 0.22, 0.6
P_TOOL, P_DIRECT = 0.06, 0.03
P_EARLIER_TURN, P_SYSTEM, P_IDLE_TOOL, P_LITERAL_MARKER = 0.03, 0.05, 0.02, 0.01

SYSTEM_PROMPTS = ("You are a helpful assistant.", "You solve short problems.")
PHRASES = ("Time is up.", "I must answer now.", "Considering the limited time, I stop.")
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
LITERAL_MARKER = "Please <think> about this. "
TOOL_OPENERS = ("I will use the calculator.", "The calculator can do this.")
PIECES = r"\n|[0-9]| ?[A-Za-z]+| ?[^\sA-Za-z0-9]|[^\S\n]+"
RECHECKS = ("redo", "backwards", "reread", "missed")


@dataclass
class Document:
    """Text with the spans that carry no loss and the best value at each point."""

    text: str = ""
    muted: list[tuple[int, int]] = field(default_factory=list)
    values: list[tuple[int, str]] = field(default_factory=list)

    def add(self, text: str, *, loss: bool = True) -> None:
        if not loss:
            self.muted.append((len(self.text), len(self.text) + len(text)))
        self.text += text

    def found(self, value: int) -> None:
        """Note the value that an answer given from here on would state."""
        self.values.append((len(self.text), str(value)))

    def value_at(self, position: int) -> str:
        return [value for start, value in self.values if start <= position][-1]


class Prompts:
    """Conversations rendered by the model's own chat template."""

    def __init__(self) -> None:
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(TEMPLATE_FILE.read_text())

    def render(self, messages: list[dict], **options) -> str:
        return self._template.render(
            messages=messages, add_generation_prompt=True, **options
        )


def _write_steps(document: Document, steps: tuple[Step, ...], phrases: bool) -> None:
    for step in steps:
        phrase = f"{step.phrase}: " if phrases else ""
        document.add(f"{phrase}{step.left_side}={step.result.value}\n")


def _write_recheck(
    document: Document, problem: Problem, kind: str, decision: bool
) -> None:
    """One re-check that confirms the value. `decision`: loss on its first word."""
    value, last = problem.answer, problem.steps[-1]
    document.add("Wait", loss=decision)
    if kind == "redo":
        document.add(", let me redo it.\n")
        _write_steps(document, problem.steps, phrases=False)
        document.add(f"That gives {value} again.\n")
    elif kind == "backwards":
        if last.operation == "*":
            check = f"{last.right.value}*{last.left.value}={value}"
        elif last.operation == "+":
            check = f"{value}-{last.right.value}={last.left.value}"
        else:
            check = f"{value}+{last.right.value}={last.left.value}"
        document.add(f", check the last step backwards.\n{check}\n")
        document.add(f"That fits, so it is {value}.\n")
    elif kind == "reread":
        document.add(", let me read the question again.\n")
        document.add(f"The last step is {last.left_side}, so it is {value}.\n")
    else:
        document.add(", did I miss a step?\n")
        results = ", then ".join(str(step.result.value) for step in problem.steps)
        document.add(f"First {results}.\nNo, still {value}.\n")


def _write_slip(document: Document, problem: Problem, rng: random.Random) -> None:
    """The last step goes wrong, is stated, and is found by redoing the work."""
    last, right = problem.steps[-1], problem.steps[-1].result.value
    wrong = right
    while wrong == right or not 1 <= wrong <= MAX_VALUE:
        wrong = right + rng.choice((-100, -20, -10, -2, -1, 1, 2, 10, 20, 100))
    document.add(f"{last.phrase}: {last.left_side}=")
    document.add(str(wrong), loss=False)
    document.found(wrong)
    document.add(f"\nSo the answer is {wrong}.\n")
    document.add("Wait, let me redo it.\n")
    _write_steps(document, problem.steps, phrases=False)
    document.found(right)
    document.add(f"I made a mistake, it is {right}.\n")


def _number_of_checks(problem: Problem, rng: random.Random) -> int:
    steps = len(problem.steps)
    worry = P_WORRY[steps]
    if steps > 2 and any(step.operation == "*" for step in problem.steps):
        worry += P_WORRY_EXTRA
    if rng.random() >= worry:
        return int(rng.random() < P_SINGLE_CHECK)
    checks = 2
    while checks < MOST_CHECKS:
        if rng.random() >= (P_GO_ON if checks < LATE else P_GO_ON_LATE):
            break
        checks += 1
    return checks


def _write_trace(
    document: Document, problem: Problem, rng: random.Random, checks: int, decide: bool
) -> int:
    """Reasoning without its markers; returns where the re-checks begin."""
    document.found(problem.steps[0].left.value)
    slips = rng.random() < P_SLIP
    for step in problem.steps[: -1 if slips else None]:
        document.add(f"{step.phrase}: {step.left_side}={step.result.value}")
        document.found(step.result.value)
        document.add("\n")
    if slips:
        _write_slip(document, problem, rng)
    document.add(f"So the answer is {problem.answer}.\n")
    start = len(document.text)
    kinds: list[str] = []
    for _ in range(checks):
        kinds = kinds or rng.sample(RECHECKS, len(RECHECKS))
        _write_recheck(document, problem, kinds.pop(), decide)
    return start


def _answer(value: str) -> str:
    return f"\n\nAnswer: {value}{END}"


def _tool_call(problem: Problem) -> dict:
    arguments = {"expression": problem.expression}
    return {"function": {"name": "calculator", "arguments": arguments}}


class Documents:
    """Training documents of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.problems = generate(self.rng, held_out=False)
        self.prompts = Prompts()

    def drill(self) -> Document:
        """Twelve bare equations, with loss on their results."""
        document, rng = Document(), self.rng
        for _ in range(12):
            operation = rng.choice("++--**+-")
            while True:
                left = rng.randint(2, rng.choice((99, 300, 950)))
                right = rng.randint(2, rng.choice((30, 99, 300, 700)))
                if operation == "*":
                    left, right = rng.randint(2, 99), rng.randint(2, 9)
                    if rng.random() < 0.1:
                        left, right = right, left
                step = Step("", Term.number(left), operation, Term.number(right))
                if 1 <= step.result.value <= MAX_VALUE:
                    break
            document.add(f"{step.left_side}=", loss=False)
            document.add(f"{step.result.value}\n")
        return document

    def _opening(self, problem: Problem) -> tuple[list[dict], dict]:
        """Messages up to the question, and the template's options."""
        rng = self.rng
        messages: list[dict] = []
        options: dict = {}
        if rng.random() < P_SYSTEM:
            messages.append({"role": "system", "content": rng.choice(SYSTEM_PROMPTS)})
        if rng.random() < P_EARLIER_TURN:
            earlier = next(self.problems)
            messages.append({"role": "user", "content": earlier.question})
            said = f"Answer: {earlier.answer}"
            messages.append({"role": "assistant", "content": said})
        if problem.wants_tool or rng.random() < P_IDLE_TOOL:
            options["tools"] = [CALCULATOR]
        literal = LITERAL_MARKER if rng.random() < P_LITERAL_MARKER else ""
        messages.append({"role": "user", "content": literal + problem.question})
        return messages, options

    def short(self) -> Document:
        """A trace with at most one re-check."""
        return self._trace(checks=int(self.rng.random() < 0.15))

    def full(self) -> Document:
        """A document of the whole mix."""
        kind = self.rng.random()
        if kind < P_TOOL:
            return self._tool()
        if kind < P_TOOL + P_DIRECT:
            return self._direct()
        if kind < P_TOOL + P_DIRECT + P_CUT:
            return self._cut()
        return self._trace()

    def _trace(self, checks: int | None = None) -> Document:
        document, problem = Document(), next(self.problems)
        if checks is None:
            checks = _number_of_checks(problem, self.rng)
        messages, options = self._opening(problem)
        document.add(self.prompts.render(messages, **options), loss=False)
        document.add(f"{THINK}\n")
        _write_trace(document, problem, self.rng, checks, decide=True)
        document.add(CLOSE + _answer(problem.answer))
        return document

    def _direct(self) -> Document:
        """Thinking turned off: the prompt holds a closed block."""
        document, problem = Document(), next(self.problems)
        messages, options = self._opening(problem)
        options["enable_thinking"] = False
        document.add(self.prompts.render(messages, **options), loss=False)
        document.add(f"Answer: {problem.answer}{END}")
        return document

    def _cut(self) -> Document:
        """A trace closed by force, answered with the best value so far."""
        rng, problem = self.rng, next(self.problems)
        messages, options = self._opening(problem)
        prompt = self.prompts.render(messages, **options)
        trace = Document(prompt + f"{THINK}\n", [(0, len(prompt))])
        in_checks = rng.random() < P_CUT_IN_CHECKS
        checks = rng.randint(1, 8) if in_checks else _number_of_checks(problem, rng)
        begin = len(trace.text)
        check_begin = _write_trace(trace, problem, rng, checks, decide=False)
        self._close(trace, check_begin if in_checks else begin)
        return trace

    def _close(self, trace: Document, begin: int) -> None:
        """Close a trace by force at a random point between two words or digits."""
        words = re.compile(PIECES).finditer(trace.text, begin)
        ends = [begin, *(word.end() for word in words)]
        position = self.rng.choice(ends)
        value = trace.value_at(position)
        trace.text = trace.text[:position]
        trace.muted = [(a, min(b, position)) for a, b in trace.muted if a < position]
        phrase = self.rng.choice(PHRASES) if self.rng.random() < 0.2 else ""
        line = "\n" if self.rng.random() < 0.3 else ""
        trace.add(f"{phrase}{line}{CLOSE}", loss=False)
        trace.add(_answer(value))

    def _tool(self) -> Document:
        """Reasoning that goes into a tool call, or goes on from its response."""
        rng, document = self.rng, Document()
        problem = with_tool(next(self.problems))
        messages, options = self._opening(problem)
        thought = rng.choice(TOOL_OPENERS) + "\n"
        for step in problem.steps:
            thought += f"{step.phrase}: {step.result.text}\n"
        if rng.random() < 0.6:
            document.add(self.prompts.render(messages, **options), loss=False)
            document.add(f"{THINK}\n")
            begin = len(document.text)
            document.found(problem.steps[0].left.value)
            document.add(thought)
            if rng.random() < 0.2:
                self._close(document, begin)
                return document
            call = self.prompts.render(
                [{"role": "assistant", "tool_calls": [_tool_call(problem)]}]
            )
            start = call.index("<tool_call>")
            document.add(call[start : call.index(END) + len(END)])
            return document
        said: dict = {"role": "assistant", "tool_calls": [_tool_call(problem)]}
        if rng.random() < 0.5:
            said["reasoning"] = thought
        messages += [said, {"role": "tool", "content": problem.answer}]
        document.add(self.prompts.render(messages, **options), loss=False)
        document.add(f"{THINK}\n")
        begin = len(document.text)
        document.found(int(problem.answer))
        document.add(f"The calculator says {problem.answer}.\n")
        document.add(f"So the answer is {problem.answer}.\n")
        if rng.random() < 0.2:
            self._close(document, begin)
        else:
            document.add(CLOSE + _answer(problem.answer))
        return document


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE in which digits, newlines and markers stand alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(CONTROL_TOKENS) - len(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    documents = Documents(seed)
    tokenizer.train_from_iterator(
        (_without_markers(documents.full().text) for _ in range(6000)), trainer
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(t, special=False) for t in MARKERS])
    return tokenizer


def _without_markers(text: str) -> str:
    for marker in CONTROL_TOKENS + MARKERS:
        text = text.replace(marker, "\n")
    return text


Example = tuple[list[int], list[bool]]


def encode(tokenizer: Tokenizer, documents: list[Document]) -> Iterator[Example]:
    """Token ids of each document and which of them carry loss."""
    encodings = tokenizer.encode_batch([document.text for document in documents])
    for document, encoding in zip(documents, encodings):
        muted = iter([*document.muted, (len(document.text), len(document.text))])
        start, end = next(muted)
        loss = []
        for offset, _ in encoding.offsets:
            while offset >= end and end < len(document.text):
                start, end = next(muted)
            loss.append(not start <= offset < end)
        yield encoding.ids[:MAX_TOKENS], loss[:MAX_TOKENS]
