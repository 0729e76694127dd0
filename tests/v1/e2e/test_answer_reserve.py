# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The answer reserve through `LLM`, on the embedded model.

What is expected follows from the tokens that the same requests produce without
a reserve, not from what the model says.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from statistics import median_low
from typing import Any
from unittest import mock

import pytest

from benchmarks.models.tiny_reasoner.data import CALCULATOR
from benchmarks.models.tiny_reasoner.problems import held_out
from tests.answer_reserve_utils import (
    ENGINE_ENV,
    ENGINE_OPTIONS,
    MAX_MODEL_LEN,
    TINY_REASONER,
    forced_end,
    ngram,
    skip_unless_supported,
)
from vllm import LLM, SamplingParams
from vllm.config import ReasoningConfig
from vllm.exceptions import VLLMValidationError
from vllm.outputs import CompletionOutput
from vllm.sampling_params import StructuredOutputsParams

pytestmark = pytest.mark.slow_test

PHRASE = "I must answer now.\n</think>"


FORCED_PHRASE = {"reasoning_config": ReasoningConfig(reasoning_end_str=PHRASE)}
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "phrase": FORCED_PHRASE,
    "ngram": ngram(3),
    "ngram, phrase": ngram(3) | FORCED_PHRASE,
    "ngram 6": ngram(6),
    "ngram 6, phrase": ngram(6) | FORCED_PHRASE,
}
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.7, "top_p": 0.95},
}

AMPLE = 224
RESERVE = 16
QUESTIONS = [problem.question for problem in held_out(24, seed=3)]
TOOL_QUESTIONS = [problem.question for problem in held_out(12, 4, wants_tool=True)]

Tokens = list[int]


@pytest.fixture(scope="module")
def engine():
    """Start each engine once, when it is first asked for."""
    started: dict[str, LLM] = {}

    def start(name: str) -> LLM:
        options = ENGINE_OPTIONS | ENGINES[name]
        skip_unless_supported(options)
        if name not in started:
            started[name] = LLM(
                TINY_REASONER,
                disable_log_stats=False,
                # The model would go on with spaces where JSON allows any number.
                structured_outputs_config={
                    "backend": "xgrammar",
                    "disable_any_whitespace": True,
                },
                **options,
            )
        return started[name]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENGINE_ENV.items():
            patch.setenv(name, value)
        yield start
        started.clear()


@pytest.fixture(scope="module")
def llm(engine) -> LLM:
    return engine("plain")


@pytest.fixture(scope="module")
def token_id(llm) -> Callable[[str], int]:
    """Look up the id of a text that is one token."""

    def look_up(text: str) -> int:
        (token_id,) = llm.get_tokenizer().encode(text, add_special_tokens=False)
        return token_id

    return look_up


@pytest.fixture(scope="module")
def exits(token_id) -> set[int]:
    return {token_id("</think>"), token_id("<tool_call>")}


@pytest.fixture(scope="module")
def without_reserve(llm) -> dict[str, list[Tokens]]:
    """What the questions are answered with ample tokens and no reserve."""
    return {
        name: chat(llm, QUESTIONS, max_tokens=AMPLE, **sampling)
        for name, sampling in SAMPLING.items()
    }


def chat(
    llm: LLM, questions: list[str], chat_options: dict | None = None, **params: Any
) -> list[Tokens]:
    """Output token ids of each question; requests differ in their seeds."""
    each = [SamplingParams(seed=seed, **params) for seed in range(len(questions))]
    return chat_with(llm, questions, each, chat_options)


def chat_with(
    llm: LLM,
    questions: list[str],
    params: list[SamplingParams],
    chat_options: dict | None = None,
) -> list[Tokens]:
    outputs = llm.chat(
        [[{"role": "user", "content": question}] for question in questions],
        params,
        use_tqdm=False,
        **(chat_options or {}),
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


def is_open(tokens: Tokens, length: int, exits: set[int]) -> bool:
    """Whether an output is still reasoning at a length that it reaches."""
    return len(tokens) >= length and not exits.intersection(tokens[:length])


def middle_of_reasoning(outputs: list[Tokens], exits: set[int]) -> int:
    """A length at which some blocks are open and some are closed."""
    return median_low(
        next((i for i, token in enumerate(tokens) if token in exits), len(tokens))
        for tokens in outputs
    )


def check_closed_at(
    close_len: int,
    before: list[Tokens],
    after: list[Tokens],
    max_tokens: int,
    end: Tokens,
    exits: set[int],
) -> int:
    """Hold outputs with a limit against those without; returns how many differ."""
    num_closed = 0
    for unset, tokens in zip(before, after, strict=True):
        assert len(tokens) <= max_tokens
        if is_open(unset, close_len, exits):
            num_closed += 1
            assert tokens[:close_len] == unset[:close_len]
            assert tokens[close_len : close_len + len(end)] == end
        else:
            assert tokens == unset[:max_tokens]
    return num_closed


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("reserve", [8, RESERVE, 40])
def test_open_blocks_close_at_the_reserve_and_nothing_else_changes(
    llm, exits, without_reserve, sampling, reserve
):
    before = without_reserve[sampling]
    close_len = middle_of_reasoning(before, exits)
    max_tokens = close_len + reserve
    after = chat(
        llm,
        QUESTIONS,
        max_tokens=max_tokens,
        reasoning_answer_reserve=reserve,
        **SAMPLING[sampling],
    )
    num_closed = check_closed_at(
        close_len, before, after, max_tokens, forced_end(llm), exits
    )
    assert 0 < num_closed < len(QUESTIONS)


@pytest.mark.parametrize("sampling", SAMPLING)
def test_a_reserve_that_never_fires_changes_no_token(
    llm, exits, without_reserve, sampling
):
    before = without_reserve[sampling]
    closed = [i for i, tokens in enumerate(before) if exits.intersection(tokens)]
    assert closed
    # Every other block closes by itself before the reserve is due.
    last = max(i for n in closed for i, token in enumerate(before[n]) if token in exits)
    after = chat(
        llm,
        QUESTIONS,
        max_tokens=AMPLE,
        reasoning_answer_reserve=AMPLE - last - 1,
        **SAMPLING[sampling],
    )
    for n in closed:
        assert after[n] == before[n]


@pytest.mark.parametrize("off", [0, -1])
def test_an_explicit_off_is_as_unset(llm, without_reserve, off):
    after = chat(
        llm, QUESTIONS[:8], max_tokens=48, reasoning_answer_reserve=off, temperature=0
    )
    assert after == [tokens[:48] for tokens in without_reserve["greedy"][:8]]


@pytest.mark.parametrize("speculative", [False, True], ids=["plain", "ngram"])
@pytest.mark.parametrize("phrase", [False, True], ids=["marker", "phrase"])
def test_the_forced_end_is_complete_with_and_without_drafts(
    engine, exits, without_reserve, speculative, phrase
):
    name = ", ".join(["ngram"] * speculative + ["phrase"] * phrase) or "plain"
    llm, before = engine(name), without_reserve["greedy"]
    close_len = middle_of_reasoning(before, exits)
    end = forced_end(llm)
    assert (len(end) > 1) == phrase
    max_tokens = close_len + RESERVE
    after = chat(
        llm,
        QUESTIONS,
        max_tokens=max_tokens,
        reasoning_answer_reserve=RESERVE,
        temperature=0,
    )
    num_closed = check_closed_at(close_len, before, after, max_tokens, end, exits)
    assert 0 < num_closed < len(QUESTIONS)


@pytest.mark.parametrize("phrase", [False, True], ids=["marker", "phrase"])
@pytest.mark.parametrize("budget", [None, 20], ids=["reserve", "both limits"])
def test_speculative_decoding_gives_the_same_tokens(engine, phrase, budget):
    suffix = ["phrase"] * phrase
    outputs = {
        name: chat(
            engine(name),
            QUESTIONS,
            max_tokens=48,
            reasoning_answer_reserve=RESERVE,
            thinking_token_budget=budget,
            temperature=0,
        )
        for name in (", ".join(suffix) or "plain", ", ".join(["ngram", *suffix]))
    }
    plain, speculative = outputs.values()
    assert speculative == plain
    accepted = [
        metric.value
        for metric in engine(", ".join(["ngram", *suffix])).get_metrics()
        if metric.name == "vllm:spec_decode_num_accepted_tokens"
    ]
    assert sum(accepted) > 0


@pytest.mark.parametrize("name", ["ngram", "ngram, phrase"])
def test_sampled_drafts_do_not_move_the_close(engine, exits, name):
    llm, end = engine(name), forced_end(engine(name))
    close_len, max_tokens = 32, 32 + RESERVE
    outputs = llm.chat(
        [[{"role": "user", "content": question}] for question in QUESTIONS],
        SamplingParams(
            temperature=0.7, max_tokens=max_tokens, reasoning_answer_reserve=RESERVE
        ),
        use_tqdm=False,
    )
    sampled = [list(output.outputs[0].token_ids) for output in outputs]
    forced = [tokens for tokens in sampled if is_open(tokens, close_len, exits)]
    assert forced
    for tokens in forced:
        assert tokens[close_len : close_len + len(end)] == end


SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["sum", "product"]}, "sure": {"type": "boolean"}},
    "required": ["kind", "sure"],
    "additionalProperties": False,
}
GRAMMAR_EDGES = range(20, 34)
GRAMMAR_ROOM = 60


def answer_in_schema(llm: LLM, questions: list[str]) -> list[CompletionOutput]:
    """Each question with the close at each edge, in one batch."""
    grammar = StructuredOutputsParams(json=SCHEMA)
    params = [
        SamplingParams(
            temperature=0,
            max_tokens=close_len + GRAMMAR_ROOM,
            reasoning_answer_reserve=GRAMMAR_ROOM,
            structured_outputs=grammar,
        )
        for _ in questions
        for close_len in GRAMMAR_EDGES
    ]
    messages = [
        [{"role": "user", "content": question}]
        for question in questions
        for _ in GRAMMAR_EDGES
    ]
    outputs = llm.chat(messages, params, use_tqdm=False)
    return [output.outputs[0] for output in outputs]


@pytest.fixture(scope="module")
def in_schema_without_drafts(engine) -> Callable[[str], list[Tokens]]:
    @cache
    def answer(name: str) -> list[Tokens]:
        outputs = answer_in_schema(engine(name), QUESTIONS[:4])
        return [list(output.token_ids) for output in outputs]

    return answer


@contextmanager
def edges_in_steps(llm: LLM) -> Iterator[Counter[str]]:
    """Count where in the drafts of a step a block is closed."""
    client: Any = llm.llm_engine.engine_core
    scheduler = client.engine_core.scheduler
    schedule = scheduler.schedule
    seen: Counter[str] = Counter()

    def watch(*args, **kwargs):
        step = schedule(*args, **kwargs)
        for req_id, drafts in step.scheduled_spec_decode_tokens.items():
            request = scheduler.requests[req_id]
            close_len = request.sampling_params._reasoning_close_len
            offset, last = close_len - request.num_output_tokens, len(drafts) - 1
            if last >= 2 and 0 <= offset <= last + 1:
                places = {0: "first", last: "last", last + 1: "bonus"}
                seen[places.get(offset, "middle")] += 1
        return step

    with mock.patch.object(scheduler, "schedule", watch):
        yield seen


@pytest.mark.parametrize("num_drafts", [3, 6])
@pytest.mark.parametrize("phrase", [False, True], ids=["marker", "phrase"])
def test_a_grammar_starts_after_the_forced_end_among_drafts(
    engine, token_id, exits, in_schema_without_drafts, num_drafts, phrase
):
    name = ("ngram" if num_drafts == 3 else "ngram 6") + ", phrase" * phrase
    llm, end = engine(name), forced_end(engine(name))
    with edges_in_steps(llm) as seen:
        outputs = answer_in_schema(llm, QUESTIONS[:4])
    num_closed = 0
    for output, close_len in zip(outputs, cycle(GRAMMAR_EDGES)):
        tokens = list(output.token_ids)
        if is_open(tokens, close_len, exits):
            num_closed += 1
            assert tokens[close_len : close_len + len(end)] == end
        assert output.finish_reason == "stop"
        answer = tokens[tokens.index(token_id("</think>")) + 1 :]
        content = json.loads(llm.get_tokenizer().decode(answer[:-1]))
        assert content.keys() == {"kind", "sure"}
        assert content["kind"] in ("sum", "product")
        assert content["sure"] in (True, False)
    without_drafts = in_schema_without_drafts("phrase" if phrase else "plain")
    assert [list(output.token_ids) for output in outputs] == without_drafts
    assert num_closed and seen.keys() == {"first", "middle", "last", "bonus"}


@pytest.mark.parametrize("max_tokens, reserve", [(64, 24), (64, 16)])
@pytest.mark.parametrize("budget", [0, 10, 39, 40, 10_000])
def test_the_earlier_of_both_limits_closes_the_block(
    llm, token_id, exits, without_reserve, max_tokens, reserve, budget
):
    after = chat(
        llm,
        QUESTIONS,
        max_tokens=max_tokens,
        reasoning_answer_reserve=reserve,
        thinking_token_budget=budget,
        temperature=0,
    )
    num_closed = 0
    for unset, tokens in zip(without_reserve["greedy"], after, strict=True):
        # The budget counts from the start marker; until there is one, from the
        # first token, as this parser's initial state is reasoning.
        block_start = unset.index(token_id("<think>")) + 1
        if budget < block_start:
            block_start = 0
        close_len = min(block_start + budget, max_tokens - reserve)
        num_closed += check_closed_at(
            close_len, [unset], [tokens], max_tokens, forced_end(llm), exits
        )
    assert num_closed


# Each would keep the reasoning end from being sampled.
OBSTACLES = [
    pytest.param(lambda end: {"logit_bias": {end: -100.0}}, id="logit_bias"),
    pytest.param(
        lambda end: {"allowed_token_ids": [i for i in range(800) if i != end]},
        id="allowed_token_ids",
    ),
    pytest.param(lambda end: {"bad_words": ["</think>"]}, id="bad_words"),
    pytest.param(
        lambda end: {"presence_penalty": 2.0, "repetition_penalty": 2.0},
        id="penalties",
    ),
    pytest.param(lambda end: {"min_tokens": RESERVE}, id="min_tokens"),
    pytest.param(
        lambda end: {"temperature": 1.5, "top_k": 1, "min_p": 0.9}, id="top_k, min_p"
    ),
    pytest.param(
        lambda end: {"temperature": 2.0, "logit_bias": {end: -100.0}}, id="temperature"
    ),
]


@pytest.mark.parametrize("name", ["plain", "phrase"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_no_sampling_parameter_keeps_the_end_from_being_forced(
    engine, token_id, exits, name, obstacle
):
    llm, end = engine(name), forced_end(engine(name))
    close_len = 12
    outputs = chat(
        llm,
        QUESTIONS[:8],
        max_tokens=close_len + RESERVE,
        reasoning_answer_reserve=RESERVE,
        **({"temperature": 0} | obstacle(token_id("</think>"))),
    )
    forced = [tokens for tokens in outputs if is_open(tokens, close_len, exits)]
    assert forced
    for tokens in forced:
        assert tokens[close_len : close_len + len(end)] == end


@pytest.fixture(scope="module")
def long_prompts(llm) -> list[Tokens]:
    """The questions, each behind text that leaves it 60 to 71 tokens of context."""
    tokenizer = llm.get_tokenizer()
    prompts = []
    for extra, question in enumerate(QUESTIONS[:12]):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_dict=False,
        )
        filler = tokenizer.encode("apples ", add_special_tokens=False)[:1]
        missing = MAX_MODEL_LEN - 60 - extra - len(prompt)
        prompts.append(filler * missing + prompt)
    return prompts


def generate(llm: LLM, prompts: list[Tokens], **params: Any) -> list[Tokens]:
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(temperature=0, **params),
        use_tqdm=False,
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("max_tokens", [None, 10_000])
def test_the_end_of_the_context_is_the_limit_where_it_comes_first(
    llm, exits, long_prompts, max_tokens
):
    before = generate(llm, long_prompts, max_tokens=max_tokens)
    after = generate(
        llm, long_prompts, max_tokens=max_tokens, reasoning_answer_reserve=40
    )
    num_closed = 0
    for prompt, unset, tokens in zip(long_prompts, before, after, strict=True):
        room = MAX_MODEL_LEN - len(prompt)
        num_closed += check_closed_at(
            room - 40, [unset], [tokens], room, forced_end(llm), exits
        )
    assert num_closed


def test_a_context_with_no_more_room_than_the_reserve_goes_to_the_answer(
    llm, long_prompts
):
    for tokens in generate(
        llm, long_prompts, max_tokens=None, reasoning_answer_reserve=100
    ):
        assert tokens[: len(forced_end(llm))] == forced_end(llm)


def test_samples_of_one_prompt_close_each_on_its_own(llm, exits):
    close_len = 40
    params = {"n": 6, "temperature": 1.0, "seed": 5, "max_tokens": close_len + RESERVE}
    messages = [[{"role": "user", "content": question}] for question in QUESTIONS[:6]]
    before, after = (
        [
            list(sample.token_ids)
            for output in llm.chat(
                messages,
                SamplingParams(reasoning_answer_reserve=reserve, **params),
                use_tqdm=False,
            )
            for sample in output.outputs
        ]
        for reserve in (None, RESERVE)
    )
    num_closed = check_closed_at(
        close_len, before, after, params["max_tokens"], forced_end(llm), exits
    )
    assert 0 < num_closed < len(before)


@pytest.mark.parametrize("name", ["plain", "phrase", "ngram"])
def test_a_tool_call_under_way_is_left_alone(engine, token_id, exits, name):
    llm, call = engine(name), token_id("<tool_call>")
    options = {"tools": [CALCULATOR]}
    before = chat(llm, TOOL_QUESTIONS, options, max_tokens=AMPLE, temperature=0)
    calls = {
        question: tokens
        for question, tokens in zip(TOOL_QUESTIONS, before, strict=True)
        if call in tokens
    }
    assert calls
    # The reserve is due in the middle of each call.
    limits = [tokens.index(call) + 4 + RESERVE for tokens in calls.values()]
    params = [
        SamplingParams(
            temperature=0, max_tokens=limit, reasoning_answer_reserve=RESERVE
        )
        for limit in limits
    ]
    after = chat_with(llm, list(calls), params, options)
    for unset, tokens, limit in zip(calls.values(), after, limits, strict=True):
        assert tokens == unset[:limit]


@pytest.mark.parametrize("name", ["plain", "phrase"])
def test_a_tool_call_opened_in_the_prompt_is_left_alone(engine, name):
    llm = engine(name)
    tokenizer = llm.get_tokenizer()
    prompts = []
    for question in TOOL_QUESTIONS[:4]:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            tokenize=False,
        )
        text += '<think>\nI will use the calculator.\n<tool_call>\n{"name": '
        prompts.append(tokenizer.encode(text, add_special_tokens=False))
    before = generate(llm, prompts, max_tokens=32)
    for reserve in (RESERVE, 31):
        after = generate(llm, prompts, max_tokens=32, reasoning_answer_reserve=reserve)
        assert after == before


def continue_messages(llm: LLM, begun: list[str], **params: Any) -> list[Tokens]:
    """Continue messages that an assistant has begun to answer the questions with."""
    conversations = [
        [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
        for question, text in zip(QUESTIONS, begun)
    ]
    outputs = llm.chat(
        conversations,
        SamplingParams(temperature=0, **params),
        use_tqdm=False,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("name", ["plain", "phrase", "ngram"])
@pytest.mark.parametrize("num_begun", [1, 2, 9])
def test_reasoning_continued_from_the_prompt_closes_at_the_reserve(
    engine, exits, without_reserve, name, num_begun
):
    llm = engine(name)
    begun = [
        llm.get_tokenizer().decode(tokens[:num_begun])
        for tokens in without_reserve["greedy"][:12]
    ]
    assert all("<think>" in text and "</think>" not in text for text in begun)
    before = continue_messages(llm, begun, max_tokens=AMPLE)
    for close_len in (1, 2, middle_of_reasoning(before, exits)):
        max_tokens = close_len + RESERVE
        after = continue_messages(
            llm, begun, max_tokens=max_tokens, reasoning_answer_reserve=RESERVE
        )
        num_closed = check_closed_at(
            close_len, before, after, max_tokens, forced_end(llm), exits
        )
        assert num_closed == len(begun) if close_len < 3 else num_closed


@pytest.mark.parametrize("name", ["plain", "phrase"])
@pytest.mark.parametrize("answer", ["", "The answer"])
def test_an_answer_continued_from_the_prompt_is_left_alone(engine, name, answer):
    llm = engine(name)
    begun = [f"<think>\n1 + 1 = 2.\n</think>\n\n{answer}"] * 8
    before = continue_messages(llm, begun, max_tokens=32)
    for reserve in (RESERVE, 31):
        assert before == continue_messages(
            llm, begun, max_tokens=32, reasoning_answer_reserve=reserve
        )


@pytest.mark.parametrize("literal", ["", "Please <think> about this. "])
def test_with_thinking_turned_off_nothing_is_forced(llm, literal):
    questions = [literal + question for question in QUESTIONS[:8]]
    options = {"chat_template_kwargs": {"enable_thinking": False}}
    params = {"max_tokens": 32, "temperature": 0}
    before = chat(llm, questions, options, **params)
    after = chat(llm, questions, options, reasoning_answer_reserve=31, **params)
    assert after == before


def test_a_literal_marker_in_the_question_opens_no_block(llm, token_id, exits):
    questions = [f"Please <think> about this. {question}" for question in QUESTIONS]
    before = chat(llm, questions, max_tokens=48, temperature=0)
    num_closed = 0
    for limits, close_after in (
        ({"thinking_token_budget": 20}, 20),
        ({"thinking_token_budget": 20, "reasoning_answer_reserve": RESERVE}, 20),
        ({"reasoning_answer_reserve": RESERVE}, None),
    ):
        after = chat(llm, questions, max_tokens=48, temperature=0, **limits)
        for unset, tokens in zip(before, after, strict=True):
            block_start = unset.index(token_id("<think>")) + 1
            close_len = 48 - RESERVE if close_after is None else block_start + 20
            num_closed += check_closed_at(
                close_len, [unset], [tokens], 48, forced_end(llm), exits
            )
    assert num_closed


def test_a_refused_reserve_leaves_the_engine_serving(llm, without_reserve):
    with pytest.raises(VLLMValidationError, match="close alone") as raised:
        chat(llm, QUESTIONS[:2], max_tokens=48, reasoning_answer_reserve=1)
    assert raised.value.parameter == "reasoning_answer_reserve"
    after = chat(llm, QUESTIONS[:2], max_tokens=48, temperature=0)
    assert after == [tokens[:48] for tokens in without_reserve["greedy"][:2]]


def test_the_callers_params_are_as_they_were(llm):
    params = SamplingParams(max_tokens=48, reasoning_answer_reserve=RESERVE)
    before = repr(params)
    for content in ("What is 2+3?", "apples " * 460 + "What is 2+3?"):
        llm.chat([{"role": "user", "content": content}], params, use_tqdm=False)
    assert repr(params) == before
