# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The same request through every way in: one close position, one cause.

One server carries a default reserve, so that the same requests show both a
reserve of their own and the default; its `/metrics` count them.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.models.tiny_reasoner.problems import held_out
from tests.answer_reserve_utils import (
    ENGINE_ENV,
    ENGINE_OPTIONS,
    MAX_MODEL_LEN,
    TINY_REASONER,
    forced_end,
    free_port,
    serving,
)
from vllm import LLM, AsyncEngineArgs, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

pytestmark = pytest.mark.slow_test

FIELD = "reasoning_answer_reserve"
MODEL = "tiny-reasoner"
MAX_TOKENS, RESERVE, DEFAULT = 24, 10, 8
CLOSE_LEN = MAX_TOKENS - RESERVE
QUESTION = held_out(1, seed=3)[0].question
MESSAGES = [{"role": "user", "content": QUESTION}]
SERVER_OPTIONS = [
    *("--dtype", "float32", "--enforce-eager", "--seed", "0"),
    *("--max-model-len", str(MAX_MODEL_LEN)),
    *("--gpu-memory-utilization", "0.1", "--num-gpu-blocks-override", "256"),
    *("--reasoning-parser", "qwen3"),
]
ENV = os.environ | ENGINE_ENV | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
VLLM = [sys.executable, "-m", "vllm.entrypoints.cli.main"]


@dataclass
class Reply:
    """What one way in answers: the reasoning as text or as tokens, and the cause."""

    closed_by: str | None
    reasoning: str | None = None
    token_ids: list[int] | None = None


@pytest.fixture(scope="module")
def llm():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENGINE_ENV.items():
            patch.setenv(name, value)
        llm = LLM(
            TINY_REASONER,
            **ENGINE_OPTIONS,
            disable_log_stats=False,
            override_generation_config={FIELD: DEFAULT},
        )
        yield llm
        llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def end_token_id(llm) -> int:
    (token_id,) = forced_end(llm)
    return token_id


@pytest.fixture(scope="module")
def prompt_token_ids(llm) -> list[int]:
    tokenizer = llm.get_tokenizer()
    return tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False
    )


@pytest.fixture(scope="module")
def unlimited(llm) -> list[int]:
    """The output without a reserve: still reasoning when its tokens are spent."""
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, **{FIELD: 0})
    (request,) = llm.chat(MESSAGES, params, use_tqdm=False)
    return list(request.outputs[0].token_ids)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of the embedded model with a default reserve; yields its address."""
    port = free_port()
    log_path = tmp_path_factory.mktemp("server") / "log.txt"
    command = [*VLLM, "serve", TINY_REASONER, "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enable-scale-out"]
    command += ["--reasoning-config", json.dumps({"answer_reserve": DEFAULT})]
    command += SERVER_OPTIONS
    with serving(command, port, ENV, log_path) as address:
        yield address


@dataclass
class Context:
    """What the ways in need."""

    server: str
    prompt_token_ids: list[int]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = httpx.post(f"{self.server}{path}", json=body, timeout=300)
        assert reply.is_success, reply.text
        return reply.json()

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a streamed reply."""
        body = body | {"stream": True}
        reply = httpx.post(f"{self.server}{path}", json=body, timeout=300)
        assert reply.is_success, reply.text
        lines = [line[6:] for line in reply.text.splitlines() if line[:6] == "data: "]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture(scope="module")
def context(server, prompt_token_ids):
    return Context(server, prompt_token_ids)


CHAT = {
    "model": MODEL,
    "messages": MESSAGES,
    "max_tokens": MAX_TOKENS,
    "temperature": 0,
    "return_token_ids": True,
}


def of_choices(choices: list[dict[str, Any]]) -> Reply:
    """From the choices of a reply, one a chunk; only the last names the cause."""
    causes = [choice.get("reasoning_closed_by") for choice in choices]
    assert not any(causes[:-1])
    token_ids = [token for choice in choices for token in choice.get("token_ids") or ()]
    return Reply(causes[-1], token_ids=token_ids)


def chat(context: Context, reserve: dict[str, int]) -> Reply:
    reply = context.post("/v1/chat/completions", CHAT | reserve)
    return of_choices(reply["choices"])


def chat_stream(context: Context, reserve: dict[str, int]) -> Reply:
    chunks = context.events("/v1/chat/completions", CHAT | reserve)
    return of_choices([choice for chunk in chunks for choice in chunk["choices"]])


def chat_openai_client(context: Context, reserve: dict[str, int]) -> Reply:
    with openai.OpenAI(base_url=f"{context.server}/v1", api_key="none") as client:
        completion = client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_completion_tokens=MAX_TOKENS,
            temperature=0,
            extra_body=reserve,
        )
    (choice,) = completion.choices
    return Reply(choice.reasoning_closed_by, reasoning=choice.message.reasoning)


def chat_batch(context: Context, reserve: dict[str, int]) -> Reply:
    body = CHAT | {"messages": [MESSAGES, MESSAGES]} | reserve
    first, second = context.post("/v1/chat/completions/batch", body)["choices"]
    assert first["token_ids"] == second["token_ids"]
    return of_choices([first])


def completion(context: Context, reserve: dict[str, int]) -> Reply:
    body = CHAT | {"prompt": context.prompt_token_ids} | reserve
    del body["messages"]
    return of_choices(context.post("/v1/completions", body)["choices"])


def completion_stream(context: Context, reserve: dict[str, int]) -> Reply:
    body = CHAT | {"prompt": context.prompt_token_ids} | reserve
    del body["messages"]
    chunks = context.events("/v1/completions", body)
    return of_choices([choice for chunk in chunks for choice in chunk["choices"]])


RESPONSES = {
    "model": MODEL,
    "input": QUESTION,
    "max_output_tokens": MAX_TOKENS,
    "temperature": 0,
}


def of_response(response: dict[str, Any]) -> Reply:
    reasoning = [
        part["text"]
        for item in response["output"]
        if item["type"] == "reasoning"
        for part in item["content"]
    ]
    return Reply(response["reasoning_closed_by"], reasoning="".join(reasoning))


def responses(context: Context, reserve: dict[str, int]) -> Reply:
    return of_response(context.post("/v1/responses", RESPONSES | reserve))


def responses_stream(context: Context, reserve: dict[str, int]) -> Reply:
    events = context.events("/v1/responses", RESPONSES | reserve)
    return of_response(events[-1]["response"])


ANTHROPIC = {
    "model": MODEL,
    "messages": MESSAGES,
    "max_tokens": MAX_TOKENS,
    "temperature": 0,
}


def messages(context: Context, reserve: dict[str, int]) -> Reply:
    reply = context.post("/v1/messages", ANTHROPIC | reserve)
    thinking = [block["thinking"] for block in reply["content"] if "thinking" in block]
    return Reply(reply.get("reasoning_closed_by"), reasoning="".join(thinking))


def messages_anthropic_client(context: Context, reserve: dict[str, int]) -> Reply:
    with anthropic.Anthropic(base_url=context.server, api_key="none") as client:
        message = client.messages.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=MAX_TOKENS,
            extra_body={"temperature": 0} | reserve,
        )
    thinking = [block.thinking for block in message.content if block.type == "thinking"]
    closed_by = getattr(message, "reasoning_closed_by", None)
    return Reply(closed_by, reasoning="".join(thinking))


def messages_stream(context: Context, reserve: dict[str, int]) -> Reply:
    events = context.events("/v1/messages", ANTHROPIC | reserve)
    deltas = [event["delta"] for event in events if "delta" in event]
    causes = [delta.get("reasoning_closed_by") for delta in deltas]
    thinking = [delta.get("thinking") or "" for delta in deltas]
    return Reply(causes[-1], reasoning="".join(thinking))


def generate_body(context: Context, reserve: dict[str, int]) -> dict[str, Any]:
    params = {"max_tokens": MAX_TOKENS, "temperature": 0} | reserve
    return {"token_ids": context.prompt_token_ids, "sampling_params": params}


def generate(context: Context, reserve: dict[str, int]) -> Reply:
    reply = context.post("/inference/v1/generate", generate_body(context, reserve))
    return of_choices(reply["choices"])


def generate_stream(context: Context, reserve: dict[str, int]) -> Reply:
    chunks = context.events("/inference/v1/generate", generate_body(context, reserve))
    return of_choices([choice for chunk in chunks for choice in chunk["choices"]])


HTTP_WAYS: list[Callable[[Context, dict[str, int]], Reply]] = [
    chat,
    chat_stream,
    chat_openai_client,
    chat_batch,
    completion,
    completion_stream,
    responses,
    responses_stream,
    messages,
    messages_anthropic_client,
    messages_stream,
    generate,
    generate_stream,
]


@pytest.fixture(scope="module")
def check(llm, unlimited, end_token_id):
    """Check a reply: reasoning ends at the length where the reserve closes it."""
    tokenizer = llm.get_tokenizer()
    assert end_token_id not in unlimited and len(unlimited) == MAX_TOKENS

    def check(reply: Reply, close_len: int) -> None:
        assert reply.closed_by == "answer_reserve"
        if reply.token_ids is not None:
            expected = [*unlimited[:close_len], end_token_id]
            assert reply.token_ids[: close_len + 1] == expected
        if reply.reasoning is not None:
            text = tokenizer.decode(unlimited[:close_len])
            assert reply.reasoning.strip() == text.removeprefix("<think>").strip()

    return check


RESERVES = pytest.mark.parametrize(
    "reserve, close_len",
    [
        pytest.param({FIELD: RESERVE}, CLOSE_LEN, id="own"),
        pytest.param({}, MAX_TOKENS - DEFAULT, id="default"),
    ],
)


@RESERVES
@pytest.mark.parametrize("way", HTTP_WAYS, ids=lambda way: way.__name__)
def test_every_endpoint_closes_at_the_same_position(
    context, check, way, reserve, close_len
):
    check(way(context, reserve), close_len)


@pytest.mark.parametrize("way", HTTP_WAYS, ids=lambda way: way.__name__)
def test_every_endpoint_lets_a_request_turn_the_default_off(context, way, unlimited):
    reply = way(context, {FIELD: 0})
    assert reply.closed_by is None
    if reply.token_ids is not None:
        assert reply.token_ids == unlimited


def of_request_output(request) -> Reply:
    (completion,) = request.outputs
    return Reply(completion.reasoning_closed_by, token_ids=list(completion.token_ids))


@RESERVES
def test_llm_chat_and_generate_close_at_the_same_position(
    llm, prompt_token_ids, check, reserve, close_len
):
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, **reserve)
    prompt = {"prompt_token_ids": prompt_token_ids}
    for (request,) in (
        llm.chat(MESSAGES, params, use_tqdm=False),
        llm.generate([prompt], params, use_tqdm=False),
    ):
        check(of_request_output(request), close_len)


# The embedded model opens no block by itself after these.
RAW = ["def f(x):\n", "2 + 2 ="]
RAW_WAYS = [completion, completion_stream, generate, generate_stream]


@pytest.mark.parametrize(
    "way", [*RAW_WAYS, None], ids=lambda way: getattr(way, "__name__", "LLM.generate")
)
@pytest.mark.parametrize("text", RAW)
def test_the_default_leaves_raw_text_alone(context, llm, end_token_id, text, way):
    tokenizer = llm.get_tokenizer()
    start_token_id = tokenizer.convert_tokens_to_ids("<think>")

    def ask(text: str, reserve: dict[str, int]) -> Reply:
        token_ids = tokenizer.encode(text)
        options = reserve | {"ignore_eos": True}
        if way is not None:
            return way(replace(context, prompt_token_ids=token_ids), options)
        params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, **options)
        prompt = {"prompt_token_ids": token_ids}
        return of_request_output(llm.generate(prompt, params, use_tqdm=False)[0])

    off, default, own = (ask(text, r) for r in ({FIELD: 0}, {}, {FIELD: RESERVE}))
    assert default == off and len(off.token_ids) == MAX_TOKENS
    assert not {start_token_id, end_token_id} & {*off.token_ids}
    # A reserve that the request sets is honoured.
    assert own.closed_by == "answer_reserve"
    assert own.token_ids[: CLOSE_LEN + 1] == [*off.token_ids[:CLOSE_LEN], end_token_id]

    # A block that the text opens is known to be open.
    off, default = (ask(f"{text}<think>", r) for r in ({FIELD: 0}, {}))
    close_len = MAX_TOKENS - DEFAULT
    assert end_token_id not in off.token_ids[:close_len]
    assert default.closed_by == "answer_reserve"
    expected = [*off.token_ids[:close_len], end_token_id]
    assert default.token_ids[: close_len + 1] == expected


def test_the_metrics_count_no_raw_text_for_the_default(context, server, llm):
    raw = replace(context, prompt_token_ids=llm.get_tokenizer().encode(RAW[0]))
    assert counted(server, lambda: completion(raw, {})) == {}


# Continued without a start marker: only the chat template says that it is reasoning.
CONTINUED = {
    "messages": [*MESSAGES, {"role": "assistant", "content": "def f(x):"}],
    "continue_final_message": True,
    "add_generation_prompt": False,
}


def test_the_default_holds_for_what_the_chat_template_rendered(
    context, llm, end_token_id
):
    close_len = MAX_TOKENS - DEFAULT
    body = CONTINUED | {"ignore_eos": True}
    off = chat(context, body | {FIELD: 0}).token_ids
    assert end_token_id not in off[:close_len]
    for default in (chat(context, body), chat_stream(context, body)):
        assert default.closed_by == "answer_reserve"
        assert default.token_ids[: close_len + 1] == [*off[:close_len], end_token_id]


def test_params_used_for_a_chat_are_no_others_for_raw_text(llm, end_token_id):
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    (request,) = llm.chat(sampling_params=params, use_tqdm=False, **CONTINUED)
    close_len = MAX_TOKENS - DEFAULT
    assert request.outputs[0].reasoning_closed_by == "answer_reserve"
    assert request.outputs[0].token_ids[close_len] == end_token_id
    raw = {"prompt_token_ids": request.prompt_token_ids}
    (request,) = llm.generate(raw, params, use_tqdm=False)
    assert end_token_id not in request.outputs[0].token_ids


def test_the_default_sampling_params_have_the_generation_configs_reserve(llm, check):
    params = llm.get_default_sampling_params()
    params.temperature, params.max_tokens = 0, MAX_TOKENS
    (request,) = llm.chat(MESSAGES, params, use_tqdm=False)
    check(of_request_output(request), MAX_TOKENS - DEFAULT)


def test_async_llm_closes_at_the_same_position(prompt_token_ids, check):
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, **{FIELD: RESERVE})
    prompt = {"prompt_token_ids": prompt_token_ids}

    async def ask():
        engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(TINY_REASONER, **ENGINE_OPTIONS)
        )
        try:
            return [output async for output in engine.generate(prompt, params, "0")]
        finally:
            engine.shutdown()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
        reply = of_request_output(asyncio.run(ask())[-1])
    check(reply, CLOSE_LEN)


def test_a_batch_file_closes_at_the_same_position(tmp_path, check):
    request = {
        "custom_id": "0",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": CHAT | {"model": TINY_REASONER, FIELD: RESERVE},
    }
    requests, results = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests.write_text(json.dumps(request))
    files = ["-i", str(requests), "-o", str(results)]
    command = [*VLLM, "run-batch", *files, "--model", TINY_REASONER, *SERVER_OPTIONS]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    (reply,) = [json.loads(line) for line in results.read_text().splitlines()]
    check(of_choices(reply["response"]["body"]["choices"]), CLOSE_LEN)


def scrape(server: str) -> dict[tuple[str, str | None], float]:
    """Reasoning metrics of a server by name and cause."""
    text = httpx.get(f"{server}/metrics").text
    return {
        (sample.name.removeprefix("vllm:reasoning_"), sample.labels.get("closed_by")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("vllm:reasoning_") and "le" not in sample.labels
    }


def counted(server: str, act: Callable[[], Any]) -> dict[tuple[str, str | None], float]:
    """What the metrics of a server count while something is done."""
    before = scrape(server)
    act()
    after = scrape(server)
    return {
        key: after[key] - before.get(key, 0)
        for key in after
        if after[key] != before.get(key, 0) and not key[0].endswith("_created")
    }


def test_the_metrics_count_a_close_by_the_reserve(context, server):
    num_tokens = len(chat(context, {FIELD: RESERVE}).token_ids)
    counts = counted(server, lambda: chat(context, {FIELD: RESERVE}))
    assert counts == {
        ("blocks_closed_total", "answer_reserve"): 1,
        ("answer_reserve_requests_total", None): 1,
        ("forced_close_answer_tokens_count", None): 1,
        ("forced_close_answer_tokens_sum", None): num_tokens - CLOSE_LEN - 1,
    }


def test_the_metrics_count_a_close_by_the_budget(context, server):
    limits = {FIELD: 0, "thinking_token_budget": 5}
    counts = counted(server, lambda: chat(context, limits))
    assert counts[("blocks_closed_total", "thinking_token_budget")] == 1
    assert ("answer_reserve_requests_total", None) not in counts


def test_the_metrics_count_an_output_that_ended_inside_its_block(context, server):
    token_ids = chat(context, {FIELD: RESERVE}).token_ids
    assert token_ids is not None
    stop = {"stop_token_ids": token_ids[4:5]}
    counts = counted(server, lambda: chat(context, {FIELD: RESERVE} | stop))
    assert counts == {
        ("unclosed_requests_total", None): 1,
        ("answer_reserve_requests_total", None): 1,
    }


def test_the_metrics_count_no_request_without_limits(context, server):
    assert counted(server, lambda: chat(context, {FIELD: 0})) == {}


def test_the_serving_benchmark_passes_the_field_on(server, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "\n".join(json.dumps({"prompt": p.question}) for p in held_out(2, seed=3))
    )
    command = [*VLLM, "bench", "serve", "--base-url", server]
    command += ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions"]
    command += ["--model", MODEL, "--tokenizer", TINY_REASONER, "--num-prompts", "2"]
    command += ["--dataset-name", "custom", "--dataset-path", str(prompts)]
    command += ["--custom-output-len", str(MAX_TOKENS), "--skip-chat-template"]
    command += ["--extra-body", json.dumps({FIELD: RESERVE, "temperature": 0})]
    command += ["--ready-check-timeout-sec", "0", "--num-warmups", "0"]
    counts = counted(server, lambda: subprocess.run(command, env=ENV, check=True))
    assert counts[("answer_reserve_requests_total", None)] >= 2
    num_closed = counts[("blocks_closed_total", "answer_reserve")]
    answer_tokens = counts[("forced_close_answer_tokens_sum", None)]
    assert 0 < answer_tokens <= num_closed * (RESERVE - 1)


MISPLACED = {
    "/v1/chat/completions": CHAT | {"chat_template_kwargs": {FIELD: RESERVE}},
    "/v1/responses": RESPONSES | {"chat_template_kwargs": {FIELD: RESERVE}},
    "/v1/messages": ANTHROPIC | {"chat_template_kwargs": {FIELD: RESERVE}},
    "/v1/chat/completions/batch": CHAT
    | {"messages": [MESSAGES], "chat_template_kwargs": {FIELD: RESERVE}},
    "/inference/v1/generate": {
        "token_ids": [5],
        "sampling_params": {"max_tokens": MAX_TOKENS},
        FIELD: RESERVE,
    },
}


@pytest.mark.parametrize("path", MISPLACED)
def test_a_misplaced_reserve_is_a_400_that_says_where_it_belongs(server, path):
    reply = httpx.post(f"{server}{path}", json=MISPLACED[path], timeout=60)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert "Put it" in error["message"]
    assert error["param"] == FIELD


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_beam_search_with_a_reserve_of_its_own_is_a_400(server, path):
    body = CHAT | {"prompt": "1", "use_beam_search": True, "n": 2, FIELD: RESERVE}
    del body["messages" if path == "/v1/completions" else "prompt"]
    reply = httpx.post(f"{server}{path}", json=body, timeout=60)
    assert reply.status_code == 400
    assert "beam search" in reply.json()["error"]["message"]


def test_beam_search_does_not_fail_for_the_default(context):
    body = CHAT | {"use_beam_search": True, "n": 2, "max_tokens": 4}
    del body["return_token_ids"]
    assert len(context.post("/v1/chat/completions", body)["choices"]) == 2


def test_a_health_probe_does_not_fail_for_the_default(context):
    reply = context.post("/v1/chat/completions", CHAT | {"max_tokens": 1})
    (choice,) = reply["choices"]
    assert len(choice["token_ids"]) == 1 and choice["reasoning_closed_by"] is None
