# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A model of characters that thinks for as long as it is told."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from benchmarks.answer_reserve.clients import Completion, Sampling
from benchmarks.answer_reserve.extractors import arithmetic_answer
from benchmarks.answer_reserve.tasks import Problem, Task, ask

THINK, CLOSE = 0x110000, 0x110001
PROMPT = [ord("?")]


class CharTokenizer:
    """One token a character; markers decode to nothing."""

    def decode(self, token_ids, skip_special_tokens=True):
        return "".join(chr(t) for t in token_ids if t < THINK)

    def encode(self, text, add_special_tokens=True):
        return [ord(char) for char in text]


def markers(forced_end: list[int] | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        reasoning_start_token_ids=[THINK],
        reasoning_end_token_ids=forced_end or [CLOSE],
        natural_reasoning_end_token_ids=[CLOSE],
        reasoning_exit_token_ids=[[CLOSE]],
    )


def task(num_problems: int) -> Task:
    """Problems that ask for their own index."""
    problems = [Problem(str(i), str(i)) for i in range(num_problems)]
    return Task("arithmetic", problems, arithmetic_answer, ask, 40, (16,))


@dataclass
class ScriptedClient:
    """Thinks for `10 + 5 * problem` tokens, then answers rightly."""

    tokenizer: CharTokenizer = field(default_factory=CharTokenizer)
    reasoning_config: SimpleNamespace = field(default_factory=markers)
    max_model_len: int = 1000
    honours: bool = True
    """Whether it closes where the reserve says."""
    interrupt_after: int | None = None
    """Batches until the user stops it."""
    calls: list = field(default_factory=list)

    def generate(self, conversations, seeds, sampling: Sampling, reserve):
        if len(self.calls) == self.interrupt_after:
            raise KeyboardInterrupt
        self.calls.append((reserve, len(conversations), tuple(seeds)))
        return [
            self._complete(conversation[-1]["content"], sampling.max_tokens, reserve)
            for conversation in conversations
        ]

    def _complete(self, question, max_tokens, reserve) -> Completion:
        thinking = [THINK] + [ord("x")] * (9 + 5 * int(question))
        if reserve is not None and self.honours:
            thinking = thinking[: max_tokens - reserve]
        tokens = [*thinking, CLOSE, *map(ord, f"Answer: {question}"), ord("\n")]
        cut = len(tokens) > max_tokens
        return Completion(PROMPT, tokens[:max_tokens], "length" if cut else "stop")

    def close(self):
        pass
