# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The answer reserve over HTTP: `vllm serve` and the official OpenAI client."""

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from benchmarks.models.tiny_reasoner.data import CALCULATOR
from benchmarks.models.tiny_reasoner.problems import held_out
from tests.answer_reserve_utils import (
    ENGINE_ENV,
    MAX_MODEL_LEN,
    TINY_REASONER,
    free_port,
    serving,
)

pytestmark = pytest.mark.slow_test

FIELD = "reasoning_answer_reserve"
MODEL = "tiny-reasoner"
MAX_TOKENS, RESERVE = 56, 16
CLOSE_LEN = MAX_TOKENS - RESERVE

QUESTIONS = [problem.question for problem in held_out(8, seed=3)]
TOOL_QUESTIONS = [problem.question for problem in held_out(6, 4, wants_tool=True)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of the embedded model; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
    command += [TINY_REASONER, "--served-model-name", MODEL, "--seed", "0"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", str(MAX_MODEL_LEN)]
    command += ["--gpu-memory-utilization", "0.1"]
    command += ["--reasoning-parser", "qwen3"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    env = os.environ | ENGINE_ENV | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    log_path = tmp_path_factory.mktemp("server") / "log.txt"
    with serving(command, port, env, log_path) as address:
        yield address


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(
        base_url=f"{server}/v1", api_key="none", max_retries=0, timeout=300
    ) as client:
        yield client


@pytest.fixture(scope="module")
def token_id(server):
    """Look up the id of a text that is one token."""

    def look_up(text: str) -> int:
        body = {"model": MODEL, "prompt": text, "add_special_tokens": False}
        (token_id,) = httpx.post(f"{server}/tokenize", json=body).json()["tokens"]
        return token_id

    return look_up


@dataclass
class Reply:
    """What the client of one chat completion sees."""

    reasoning: str
    content: str
    finish_reason: str | None
    tool_calls: list[tuple[str, str]]
    token_ids: list[int]
    num_prompt_tokens: int


def ask(client: openai.OpenAI, question: str, **options: Any) -> Reply:
    """Ask greedily; options that the client does not know go into the body."""
    known = {"tools", "max_completion_tokens", "max_tokens"}
    arguments = {name: options.pop(name) for name in known & options.keys()}
    if not {"max_tokens", "max_completion_tokens"} & arguments.keys():
        arguments["max_tokens"] = MAX_TOKENS
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        extra_body={"return_token_ids": True} | options,
        **arguments,
    )
    (choice,) = completion.choices
    return Reply(
        reasoning=choice.message.reasoning or "",
        content=choice.message.content or "",
        finish_reason=choice.finish_reason,
        tool_calls=[
            (call.function.name, call.function.arguments)
            for call in choice.message.tool_calls or []
        ],
        token_ids=list(choice.token_ids),
        num_prompt_tokens=completion.usage.prompt_tokens,
    )


def ask_streaming(client: openai.OpenAI, question: str, **options: Any) -> Reply:
    reply = Reply("", "", None, [], [], 0)
    for chunk in client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=MAX_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True} | options,
    ):
        if chunk.usage is not None:
            reply.num_prompt_tokens = chunk.usage.prompt_tokens
        for choice in chunk.choices:
            reply.reasoning += getattr(choice.delta, "reasoning", None) or ""
            reply.content += choice.delta.content or ""
            reply.finish_reason = choice.finish_reason or reply.finish_reason
            reply.token_ids += getattr(choice, "token_ids", None) or []
    return reply


def test_a_cut_reply_has_no_content_and_the_reserve_gives_it_some(client, token_id):
    end = token_id("</think>")
    num_closed = 0
    for question in QUESTIONS:
        unset = ask(client, question)
        reply = ask(client, question, reasoning_answer_reserve=RESERVE)
        if end in unset.token_ids[:CLOSE_LEN]:
            assert reply == unset
            continue
        num_closed += 1
        assert reply.token_ids[:CLOSE_LEN] == unset.token_ids[:CLOSE_LEN]
        assert reply.token_ids[CLOSE_LEN] == end
        assert unset.reasoning.startswith(reply.reasoning)
        assert reply.content and "think>" not in reply.reasoning + reply.content
        if end not in unset.token_ids:
            assert not unset.content and unset.finish_reason == "length"
    assert num_closed


@pytest.mark.parametrize(
    "limits",
    [{FIELD: RESERVE}, {FIELD: RESERVE, "thinking_token_budget": 10}],
    ids=["reserve", "both limits"],
)
def test_streaming_splits_reasoning_and_answer_as_a_whole_reply_does(client, limits):
    for question in QUESTIONS[:4]:
        whole = ask(client, question, **limits)
        assert ask_streaming(client, question, **limits) == whole
        assert whole.reasoning and whole.content


def test_max_completion_tokens_is_the_limit_as_well(client):
    one, other = (
        ask(client, QUESTIONS[0], reasoning_answer_reserve=RESERVE, **{name: 40})
        for name in ("max_tokens", "max_completion_tokens")
    )
    assert one == other


def test_a_completion_closes_at_the_same_position(client, token_id):
    end = token_id("</think>")
    num_closed = 0
    for question in QUESTIONS[:4]:
        prompt = (
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
        )
        unset, reserved = (
            client.completions.create(
                model=MODEL,
                prompt=prompt,
                temperature=0,
                max_tokens=MAX_TOKENS,
                extra_body={"return_token_ids": True, FIELD: reserve},
            ).choices[0]
            for reserve in (None, RESERVE)
        )
        if end in unset.token_ids[:CLOSE_LEN]:
            assert reserved.token_ids == unset.token_ids
        else:
            num_closed += 1
            expected = [*unset.token_ids[:CLOSE_LEN], end]
            assert reserved.token_ids[: CLOSE_LEN + 1] == expected
    assert num_closed


@pytest.mark.parametrize(
    "reserve", [40, 200], ids=["less than the context leaves", "more than it leaves"]
)
def test_a_long_prompt_is_served_and_closes_where_the_context_ends(
    client, token_id, reserve
):
    """The pair is valid by itself, whatever the prompt leaves of the context."""
    end = token_id("</think>")
    question = "apples " * 300 + QUESTIONS[0]
    unset = ask(client, question, max_tokens=480)
    reply = ask(client, question, max_tokens=480, reasoning_answer_reserve=reserve)
    room = MAX_MODEL_LEN - unset.num_prompt_tokens
    assert reserve < 480 and room < 480
    close_len = max(room - reserve, 0)
    if end in unset.token_ids[:close_len]:
        assert reply == unset
    else:
        assert reply.token_ids[: close_len + 1] == [*unset.token_ids[:close_len], end]


def test_a_tool_call_under_way_reaches_the_client_whole(client, token_id):
    call = token_id("<tool_call>")
    num_calls = 0
    for question in TOOL_QUESTIONS:
        options = {"tools": [CALCULATOR], "max_tokens": 160}
        unset = ask(client, question, **options)
        if call not in unset.token_ids:
            continue
        num_calls += 1
        close_len = unset.token_ids.index(call) + 3
        reply = ask(
            client, question, reasoning_answer_reserve=160 - close_len, **options
        )
        assert reply == unset
    assert num_calls


# Request fields, and the value that the error must name.
REFUSALS = [
    pytest.param({FIELD: True}, "True", id="bool"),
    pytest.param({FIELD: 16.0}, "16.0", id="float"),
    pytest.param({FIELD: "16"}, "'16'", id="string"),
    pytest.param({FIELD: -2}, "-2", id="below -1"),
    pytest.param({FIELD: MAX_TOKENS}, str(MAX_TOKENS), id="all of max_tokens"),
    pytest.param({FIELD: 100}, "100", id="more than max_tokens"),
    pytest.param({FIELD: 16, "min_tokens": 17}, "16", id="below min_tokens"),
    pytest.param({FIELD: 1}, "1", id="the close alone"),
    pytest.param({FIELD: 16, "use_beam_search": True, "n": 2}, "16", id="beam search"),
]


@pytest.mark.parametrize("endpoint", ["chat", "chat streaming", "completions"])
@pytest.mark.parametrize("fields, value", REFUSALS)
def test_a_refused_request_is_a_400_that_names_the_field_and_the_value(
    client, endpoint, fields, value
):
    arguments: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": MAX_TOKENS,
        "extra_body": dict(fields),
    }
    if endpoint == "completions":
        create, arguments["prompt"] = client.completions.create, QUESTIONS[0]
    else:
        create = client.chat.completions.create
        arguments["messages"] = [{"role": "user", "content": QUESTIONS[0]}]
        arguments["stream"] = endpoint == "chat streaming"
    with pytest.raises(openai.BadRequestError) as raised:
        create(**arguments)
    error: Any = raised.value
    assert error.status_code == 400
    assert error.param == FIELD
    assert error.body["type"] == "BadRequestError" and error.body["code"] == 400
    assert FIELD in error.body["message"] and value in error.body["message"]


@pytest.mark.parametrize("off", [None, 0, -1])
def test_a_request_that_turns_the_reserve_off_is_served_as_if_unset(client, off):
    assert ask(client, QUESTIONS[0], reasoning_answer_reserve=off) == ask(
        client, QUESTIONS[0]
    )


# Its block was closed before; what follows is answer to the last token.
CONTINUED = [
    {"role": "user", "content": "Sam has 7 and gets 5. How many?"},
    {"role": "assistant", "content": "<think>\nSam has 12.\n</think>\n\nThe answer"},
]
CONTINUE: dict[str, Any] = {
    "add_generation_prompt": False,
    "continue_final_message": True,
}
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}


def continue_chat(client) -> tuple[str | None, str | None, int]:
    """Reasoning, content and counted reasoning tokens."""
    completion = client.chat.completions.create(
        messages=CONTINUED, max_tokens=8, extra_body=CONTINUE, **GREEDY
    )
    message = completion.choices[0].message
    num_reasoning = completion.usage.completion_tokens_details.reasoning_tokens
    return message.reasoning, message.content, num_reasoning


def continue_chat_streaming(client) -> tuple[str | None, str | None, int]:
    reasoning, content, num_reasoning = "", "", -1
    for chunk in client.chat.completions.create(
        messages=CONTINUED,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=CONTINUE,
        **GREEDY,
    ):
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
        if chunk.usage is not None:
            num_reasoning = chunk.usage.completion_tokens_details.reasoning_tokens
    return reasoning or None, content, num_reasoning


def continue_batch(client) -> tuple[str | None, str | None, int]:
    body = {"messages": [CONTINUED], "max_tokens": 8} | CONTINUE | GREEDY
    url = f"{client.base_url}chat/completions/batch"
    reply = httpx.post(url, json=body, timeout=60).json()
    message = reply["choices"][0]["message"]
    # The batch endpoint counts no reasoning.
    return message.get("reasoning"), message["content"], 0


def seen_of_response(response) -> tuple[str | None, str | None, int]:
    reasoning = [item for item in response.output if item.type == "reasoning"]
    num_reasoning = response.usage.output_tokens_details.reasoning_tokens
    return str(reasoning) if reasoning else None, response.output_text, num_reasoning


RESPONSES_INPUT: list[Any] = [
    CONTINUED[0],
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [
            {
                "type": "output_text",
                "text": CONTINUED[1]["content"],
                "annotations": [],
            }
        ],
    },
]


def continue_response(client) -> tuple[str | None, str | None, int]:
    return seen_of_response(
        client.responses.create(input=RESPONSES_INPUT, max_output_tokens=8, **GREEDY)
    )


def continue_response_streaming(client) -> tuple[str | None, str | None, int]:
    *_, last = client.responses.create(
        input=RESPONSES_INPUT, max_output_tokens=8, stream=True, **GREEDY
    )
    return seen_of_response(last.response)


@pytest.mark.parametrize(
    "go_on",
    [
        continue_chat,
        continue_chat_streaming,
        continue_batch,
        continue_response,
        continue_response_streaming,
    ],
)
def test_an_answer_that_is_continued_is_an_answer(client, go_on):
    # As raw text, where nothing is parsed.
    prompt = "".join(
        f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
        for message in CONTINUED
    ).removesuffix("<|im_end|>\n")
    raw = client.completions.create(prompt=prompt, max_tokens=8, **GREEDY)
    reasoning, content, num_reasoning = go_on(client)
    assert (reasoning, num_reasoning) == (None, 0)
    assert content and content == raw.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_messages_hold_no_thinking_where_the_template_closed_the_block(
    server, client, stream
):
    question = CONTINUED[0]["content"]
    prompt = (
        f"<|im_start|>user\n{question}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    raw = client.completions.create(prompt=prompt, max_tokens=8, **GREEDY)
    body = GREEDY | {
        "messages": CONTINUED[:1],
        "max_tokens": 8,
        "stream": stream,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    reply = httpx.post(f"{server}/v1/messages", json=body, timeout=60)
    if stream:
        lines = [line[6:] for line in reply.text.splitlines() if line[:6] == "data: "]
        parts = [json.loads(line).get("delta", {}) for line in lines if line[0] == "{"]
    else:
        parts = reply.json()["content"]
    assert not any("thinking" in part for part in parts)
    text = "".join(part.get("text", "") for part in parts)
    assert text and text == raw.choices[0].text
