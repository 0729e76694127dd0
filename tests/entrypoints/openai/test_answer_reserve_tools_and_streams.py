# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Tool calls, grammars, streams and load under an answer reserve, over HTTP.

Tool calls and streams run on a scripted model, whose tokens are known; grammars
and load on the embedded one.
"""

import asyncio
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from benchmarks.models.tiny_reasoner.data import CALCULATOR
from benchmarks.models.tiny_reasoner.problems import held_out
from tests.answer_reserve_utils import (
    ENGINE_ENV,
    HAS_RUNNER_V1,
    TINY_REASONER,
    free_port,
    serving,
)
from tests.v1.e2e.scripted_model import END_OF_TURN, Script, continuation, markers
from vllm.v1.sample.reasoning_limits import NEVER_DUE

pytestmark = pytest.mark.slow_test

MODEL = "model"
MARKER, PHRASE = "</think>", "Time is up </think>"
M = 40

ARGUMENTS = {"expression": "1+2"}
CALL = (
    '<tool_call> {"name": "calculator", "arguments": {"expression": "1+2"}} '
    "</tool_call>"
)
SCRIPT = Script(
    [
        # Opens a block, and never closes it.
        "open <think> w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w0",
        # Leaves its block for a tool call.
        f"tool t0 t1 t2 t3 {CALL} {END_OF_TURN}",
        # Calls a tool in each answer.
        "</think> a0 a1 <tool_call>",
        "Time is up </think>",
        "<|im_start|> user assistant",
    ]
)
# The model goes on from the last word of the prompt: the user's, or what an
# assistant's message that is continued ends with.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message.role }} "
    "{{ message.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}"
    "<|im_start|> assistant {{ messages[-1].content }}"
    "{% endif %}"
)
TOOL_CALL_AT = 4


class TrackedRequests:
    """A worker extension: the requests that the sampler has a limit of."""

    def num_tracked_requests(self) -> int:
        runner = self.model_runner  # type: ignore[attr-defined]
        if HAS_RUNNER_V1:
            return len(runner.input_batch.thinking_budget_state_holder._state)
        due_len = runner.sampler.thinking_budget_state.due_len
        slots = runner.req_states.req_id_to_index.values()
        return sum(int(due_len[slot]) != NEVER_DUE for slot in slots)


@contextmanager
def serve(model: str, log_path: Path, *arguments: str) -> Iterator[str]:
    """A server of a model; its address."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--seed", "0", "--dtype", "float32"]
    command += ["--enforce-eager", "--max-model-len", "512"]
    command += ["--gpu-memory-utilization", "0.1", "--reasoning-parser", "qwen3"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    extension = f"{TrackedRequests.__module__}.{TrackedRequests.__qualname__}"
    command += ["--worker-extension-cls", extension, *arguments]
    repository = str(Path(__file__).parents[3])
    python_path = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), repository])
    )
    env = os.environ | ENGINE_ENV
    env |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "PYTHONPATH": python_path,
    }
    with serving(command, port, env, log_path) as address:
        yield address


def forcing(end: str) -> tuple[str, str]:
    return "--reasoning-config", json.dumps({"reasoning_end_str": end})


# Forced end of a scripted server, and tokens between two chunks of a stream.
SERVERS = {
    "marker": (MARKER, 1),
    "phrase": (PHRASE, 1),
    "phrase, interval": (PHRASE, 3),
}


@pytest.fixture(scope="module", params=SERVERS)
def scripted(request, tmp_path_factory):
    """A server of the scripted model: a client of it and the forced end."""
    end, interval = SERVERS[request.param]
    folder = tmp_path_factory.mktemp("scripted")
    model = SCRIPT.save(folder / "model", CHAT_TEMPLATE)
    options = [*forcing(end), "--stream-interval", str(interval)]
    with serve(model, folder / "log", *options) as address, connect(address) as client:
        yield client, end


@pytest.fixture(scope="module")
def embedded_address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded")
    grammar = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})
    options = ["--structured-outputs-config", grammar, *forcing(PHRASE)]
    with serve(TINY_REASONER, folder / "log", *options) as address:
        yield address


@pytest.fixture(scope="module")
def embedded(embedded_address):
    with connect(embedded_address) as client:
        yield client


def connect(address: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300
    )


@dataclass
class Reply:
    """What the client of one chat completion sees."""

    reasoning: str = ""
    content: str = ""
    finish_reason: str | None = None
    tool_calls: list[tuple[str, str]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


def request_body(
    text: str, continued: str | None = None, **options: Any
) -> dict[str, Any]:
    """A request, or one that continues a message of the assistant."""
    known = {"tools", "tool_choice", "response_format"}
    extra = {name: value for name, value in options.items() if name not in known}
    messages = [{"role": "user", "content": text}]
    if continued is not None:
        messages.append({"role": "assistant", "content": continued})
        extra |= {"add_generation_prompt": False, "continue_final_message": True}
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": extra.pop("max_tokens", M),
        "temperature": 0,
        "extra_body": {"return_token_ids": True} | extra,
    } | {name: options[name] for name in known & options.keys()}


def ask(client: openai.OpenAI, text: str, **options: Any) -> Reply:
    (choice,) = client.chat.completions.create(**request_body(text, **options)).choices
    calls = choice.message.tool_calls or []
    return Reply(
        choice.message.reasoning or "",
        choice.message.content or "",
        choice.finish_reason,
        [(call.function.name, call.function.arguments) for call in calls],
        list(choice.token_ids),
    )


def ask_streaming(client: openai.OpenAI, text: str, **options: Any) -> Reply:
    reply = Reply()
    calls: dict[int, list[str]] = {}
    body = request_body(text, **options)
    for chunk in client.chat.completions.create(stream=True, **body):
        for choice in chunk.choices:
            reply.reasoning += getattr(choice.delta, "reasoning", None) or ""
            reply.content += choice.delta.content or ""
            reply.finish_reason = choice.finish_reason or reply.finish_reason
            reply.token_ids += getattr(choice, "token_ids", None) or []
            for call in choice.delta.tool_calls or []:
                parts = calls.setdefault(call.index, ["", ""])
                parts[0] += call.function.name or ""
                parts[1] += call.function.arguments or ""
    reply.tool_calls = [(name, arguments) for name, arguments in calls.values()]
    return reply


def parsed(reply: Reply) -> tuple[list[str], list[str], list, str | None, list[int]]:
    """A reply without what a client cannot rely on: spaces in text and JSON."""
    calls = [(name, json.loads(text)) for name, text in reply.tool_calls]
    return (
        reply.reasoning.split(),
        reply.content.split(),
        calls,
        reply.finish_reason,
        reply.token_ids,
    )


def expected(text: str, end: str, with_tools: bool, **limits: int) -> tuple:
    """The reply that the rules lead to, as `parsed` shows it."""
    prompt = SCRIPT.ids(text)
    output = continuation(SCRIPT, markers(SCRIPT, end), prompt, M, **limits)
    words = SCRIPT.text(output).split()
    exits = [words.index(word) for word in (MARKER, "<tool_call>") if word in words]
    split = 0 if MARKER in text else min(exits, default=len(words))
    reasoning = [word for word in words[:split] if word != "<think>"]
    rest = [word for word in words[split:] if word not in (MARKER, END_OF_TURN)]
    calls = []
    if with_tools and "<tool_call>" in rest:
        rest = rest[: rest.index("<tool_call>")]
        calls.append(("calculator", ARGUMENTS))
    finish_reason = (
        "length" if len(output) == M and words[-1] != END_OF_TURN else "stop"
    )
    return reasoning, rest, calls, "tool_calls" if calls else finish_reason, output


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("edge", range(1, TOOL_CALL_AT + 10))
def test_a_tool_call_out_of_the_reasoning_is_whole_or_not_begun(scripted, tell, edge):
    client, end = scripted
    reply = tell(client, "tool", tools=[CALCULATOR], reasoning_answer_reserve=M - edge)
    assert parsed(reply) == expected("tool", end, True, reserve=M - edge)
    num_end = len(end.split())
    forced = reply.token_ids[edge : edge + num_end] == SCRIPT.ids(end)
    assert forced == (edge <= TOOL_CALL_AT)
    # Either way the call arrives: a close does not stop one in the answer.
    assert [name for name, _ in reply.tool_calls] == ["calculator"]


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("reserve", range(8, 24))
def test_reasoning_and_answer_are_split_at_the_forced_end(scripted, tell, reserve):
    client, end = scripted
    reply = tell(client, "open", reasoning_answer_reserve=reserve)
    assert parsed(reply) == expected("open", end, False, reserve=reserve)
    assert reply.content and "think>" not in reply.reasoning + reply.content


@pytest.mark.parametrize("limits", [{}, {"budget": 5}, {"budget": 5, "reserve": 30}])
def test_a_stream_ends_as_the_whole_reply_does(scripted, limits):
    client, end = scripted
    names = {"budget": "thinking_token_budget", "reserve": "reasoning_answer_reserve"}
    options = {names[name]: value for name, value in limits.items()}
    replies = [tell(client, "open", **options) for tell in (ask, ask_streaming)]
    assert [parsed(reply) for reply in replies] == [
        expected("open", end, False, **limits)
    ] * 2


# Closes the block that was closed for it once more, again and again.
REPEATING_SCRIPT = Script(
    [
        "inside w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w0",
        "Time is up </think> a0 a1 </think>",
        "<|im_start|> user assistant",
    ]
)


@pytest.fixture(scope="module")
def repeating(tmp_path_factory):
    """A client of a server with a parser that does not run on the parser engine."""
    folder = tmp_path_factory.mktemp("repeating")
    model = REPEATING_SCRIPT.save(folder / "model", CHAT_TEMPLATE)
    options = [*forcing(PHRASE), "--reasoning-parser", "deepseek_r1"]
    with serve(model, folder / "log", *options) as address, connect(address) as client:
        yield client


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("reserve", range(5, 14))
def test_an_end_marker_that_the_model_repeats_is_no_content(repeating, tell, reserve):
    script = REPEATING_SCRIPT
    plain: dict = {"implicit_ends": [], "turn_boundaries": []}
    known = markers(script, PHRASE, **plain)
    output = continuation(script, known, script.ids("inside"), M, reserve=reserve)
    words = script.text(output).split()
    split = words.index(MARKER)
    assert (MARKER in words[split + 1 :]) == (reserve > len(PHRASE.split()) + 2)

    reply = tell(repeating, "inside", reasoning_answer_reserve=reserve)
    assert reply.token_ids == output
    assert reply.reasoning.split() == words[:split]
    content = [word for word in words[split:] if word != MARKER]
    assert reply.content.split() == content


# What is continued: the output index from which on its block is closed.
CONTINUED: dict[str, float] = {
    "<think>": math.inf,
    "<think> w0 w1 w2": math.inf,
    "<think> tool t0 t1": 2,
    "<think> w0 w1 </think> a0": 0,
    "<think> w0 w1 </think>": 0,
}


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("edge", [1, 3, 17])
@pytest.mark.parametrize("continued", CONTINUED)
def test_a_message_that_is_continued_closes_where_it_is_still_open(
    scripted, tell, continued, edge
):
    client, end = scripted
    reply = tell(client, "w9", continued=continued, reasoning_answer_reserve=M - edge)
    prompt = f"<|im_start|> user w9 {END_OF_TURN} <|im_start|> assistant {continued}"
    whole = expected(prompt, end, False, reserve=M - edge)
    assert reply.token_ids == whole[-1]
    assert parsed(reply) == whole
    is_forced = reply.token_ids[edge:][: len(end.split())] == SCRIPT.ids(end)
    assert is_forced == (edge <= CONTINUED[continued])


QUESTIONS = [problem.question for problem in held_out(8, seed=5)]
CLOSE_AT = 24
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["sum", "product"]}, "sure": {"type": "boolean"}},
    "required": ["kind", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenize(embedded_address) -> Callable[[str], list[int]]:
    def look_up(text: str) -> list[int]:
        body = {"model": MODEL, "prompt": text, "add_special_tokens": False}
        return httpx.post(f"{embedded_address}/tokenize", json=body).json()["tokens"]

    return look_up


@pytest.fixture(scope="module")
def phrase_ids(tokenize) -> list[int]:
    return tokenize(PHRASE)


def closes_at(reply: Reply, position: int, end: list[int]) -> bool:
    """Whether the forced end stands there, and nothing has closed before."""
    is_open = end[-1] not in reply.token_ids[:position]
    return is_open and reply.token_ids[position : position + len(end)] == end


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("question", QUESTIONS[:3])
def test_a_grammar_starts_after_the_forced_end(embedded, phrase_ids, tell, question):
    reply = tell(
        embedded,
        question,
        max_tokens=CLOSE_AT + 60,
        reasoning_answer_reserve=60,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    )
    assert closes_at(reply, CLOSE_AT, phrase_ids)
    assert reply.finish_reason == "stop"
    answer = json.loads(reply.content)
    assert answer["kind"] in ("sum", "product") and answer["sure"] in (True, False)
    assert set(answer) == {"kind", "sure"}


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize(
    "tool_choice",
    ["auto", "required", {"type": "function", "function": {"name": "calculator"}}],
    ids=["auto", "required", "named"],
)
def test_a_tool_choice_holds_after_a_forced_close(
    embedded, phrase_ids, tell, tool_choice
):
    reply = tell(
        embedded,
        QUESTIONS[0],
        max_tokens=CLOSE_AT + 80,
        reasoning_answer_reserve=80,
        tools=[CALCULATOR],
        tool_choice=tool_choice,
    )
    assert closes_at(reply, CLOSE_AT, phrase_ids)
    if tool_choice == "auto":
        assert reply.content or reply.tool_calls
        return
    (call,) = reply.tool_calls
    assert call[0] == "calculator"
    assert isinstance(json.loads(call[1])["expression"], str)


@pytest.fixture(scope="module")
def grammar_in_reasoning(tmp_path_factory):
    """A client of a server whose grammars hold from the first token on."""
    folder = tmp_path_factory.mktemp("grammar_in_reasoning")
    model = SCRIPT.save(folder / "model", CHAT_TEMPLATE)
    grammar = json.dumps({"backend": "xgrammar", "enable_in_reasoning": True})
    options = ["--structured-outputs-config", grammar, *forcing(MARKER)]
    with serve(model, folder / "log", *options) as address, connect(address) as client:
        yield client


GRAMMARS: dict[str, dict[str, Any]] = {
    "json_schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        }
    },
    "json_object": {"response_format": {"type": "json_object"}},
    "regex": {"structured_outputs": {"regex": "[ab]{3}"}},
    "choice": {"structured_outputs": {"choice": ["a0", "a1"]}},
    "required tool": {"tools": [CALCULATOR], "tool_choice": "required"},
}


@pytest.mark.parametrize("tell", [ask, ask_streaming])
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_reserve_that_a_grammar_would_cover_is_a_400(
    grammar_in_reasoning, tell, grammar
):
    with pytest.raises(openai.BadRequestError) as raised:
        tell(
            grammar_in_reasoning,
            "open",
            reasoning_answer_reserve=12,
            **GRAMMARS[grammar],
        )
    assert raised.value.status_code == 400
    assert raised.value.param == "reasoning_answer_reserve"
    assert "structured outputs" in raised.value.message
    assert "enable_in_reasoning" in raised.value.message


@pytest.mark.parametrize("tell", [ask, ask_streaming])
def test_without_a_grammar_the_reserve_works_where_grammars_begin_at_once(
    grammar_in_reasoning, tell
):
    reply = tell(grammar_in_reasoning, "open", reasoning_answer_reserve=12)
    assert parsed(reply) == expected("open", MARKER, False, reserve=12)
    assert reply.token_ids[M - 12] == SCRIPT.ids(MARKER)[0]


NUM_REQUESTS = 200


def test_two_hundred_requests_of_which_some_are_cancelled_leave_nothing_behind(
    embedded_address, embedded, tokenize, phrase_ids
):
    (think_id,) = tokenize("<think>")
    rng = random.Random(0)
    limits = [
        {"reasoning_answer_reserve": 16},
        {"reasoning_answer_reserve": 30, "thinking_token_budget": 12},
        {"thinking_token_budget": 20},
        {},
    ]
    plan = [
        (rng.choice(QUESTIONS), rng.randint(36, 72), rng.choice(limits), rng.random())
        for _ in range(NUM_REQUESTS)
    ]

    async def run(client: openai.AsyncOpenAI, question, max_tokens, limit, chance):
        """Token ids and how the stream ended; None where it was cancelled."""
        body = request_body(question, max_tokens=max_tokens, **limit)
        body["temperature"] = 0.7
        token_ids: list[int] = []
        stream = await client.chat.completions.create(stream=True, **body)
        async with stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    token_ids += getattr(choice, "token_ids", None) or []
                    if choice.finish_reason:
                        return token_ids, choice.finish_reason
                if chance < 0.25 and len(token_ids) > chance * 4 * max_tokens:
                    return None
        return token_ids, None

    async def run_all():
        async with openai.AsyncOpenAI(
            base_url=f"{embedded_address}/v1",
            api_key="none",
            max_retries=0,
            timeout=300,
            http_client=openai.DefaultAsyncHttpxClient(
                limits=httpx.Limits(max_connections=NUM_REQUESTS)
            ),
        ) as client:
            tasks = [run(client, *request) for request in plan]
            return await asyncio.wait_for(asyncio.gather(*tasks), 300)

    num_cancelled = num_closed = 0
    for (_, max_tokens, limit, _), result in zip(
        plan, asyncio.run(run_all()), strict=True
    ):
        if result is None:
            num_cancelled += 1
            continue
        token_ids, finish_reason = result
        assert finish_reason in ("stop", "length")
        assert len(token_ids) <= max_tokens
        reserve = limit.get("reasoning_answer_reserve")
        if reserve is None:
            continue
        close_at = max_tokens - reserve
        if (budget := limit.get("thinking_token_budget")) is not None:
            close_at = min(close_at, token_ids.index(think_id) + 1 + budget)
        # No reply with a reserve ends inside its block or inside a marker.
        end_at = token_ids.index(phrase_ids[-1])
        assert end_at < close_at + len(phrase_ids)
        if end_at >= close_at:
            num_closed += 1
            assert token_ids[close_at : close_at + len(phrase_ids)] == phrase_ids
    assert num_cancelled and num_closed

    # Cancelled requests leave with the steps of one without limits.
    deadline = time.monotonic() + 60
    while True:
        ask(embedded, QUESTIONS[0], max_tokens=4)
        rpc = {"method": "num_tracked_requests"}
        tracked = httpx.post(f"{embedded_address}/collective_rpc", json=rpc, timeout=60)
        if tracked.json()["results"] == ["0"]:
            break
        assert time.monotonic() < deadline, tracked.text
    metrics = httpx.get(f"{embedded_address}/metrics", timeout=60).text
    for name in ("running", "waiting"):
        (line,) = (
            line
            for line in metrics.splitlines()
            if line.startswith(f"vllm:num_requests_{name}{{")
        )
        assert float(line.split()[-1]) == 0
