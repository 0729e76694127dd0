# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What each protocol accepts and refuses of `reasoning_answer_reserve`.

Requests are parsed as the server parses them; no engine runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import (
    BatchChatCompletionRequest,
    ChatCompletionRequest,
)
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

FIELD = "reasoning_answer_reserve"
MESSAGES = [{"role": "user", "content": "How many?"}]
ROOM = 1000
"""Output tokens that the context leaves."""


def parse_batch(body: dict[str, Any]) -> ChatCompletionRequest:
    request = BatchChatCompletionRequest.model_validate(body)
    return request.to_chat_completion_request(request.messages[0])


def parse_messages(body: dict[str, Any]) -> ChatCompletionRequest:
    request = AnthropicMessagesRequest.model_validate(body)
    return AnthropicServingMessages.to_chat_completion_request(request)


def parse_generate(body: dict[str, Any]) -> GenerateRequest:
    params = {name: body.pop(name) for name in SAMPLING & body.keys()}
    return GenerateRequest.model_validate(body | {"sampling_params": params})


SAMPLING = {FIELD, "max_tokens", "thinking_token_budget"}


@dataclass
class Protocol:
    """One kind of request."""

    parse: Callable[[dict[str, Any]], Any]
    body: dict[str, Any]
    max_tokens: str = "max_tokens"

    def params(self, **fields: Any) -> SamplingParams:
        """The sampling params of a request with these fields."""
        request = self.parse(self.body | fields)
        if isinstance(request, GenerateRequest):
            return request.sampling_params
        return request.to_sampling_params(ROOM, {})


PROTOCOLS = {
    "chat": Protocol(ChatCompletionRequest.model_validate, {"messages": MESSAGES}),
    "batch chat": Protocol(parse_batch, {"messages": [MESSAGES]}),
    "completion": Protocol(
        CompletionRequest.model_validate, {"prompt": "How many?", "max_tokens": 100}
    ),
    "responses": Protocol(
        ResponsesRequest.model_validate, {"input": "How many?"}, "max_output_tokens"
    ),
    "messages": Protocol(
        parse_messages, {"model": "m", "messages": MESSAGES, "max_tokens": 100}
    ),
    "generate": Protocol(parse_generate, {"token_ids": [5, 6]}),
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request) -> Protocol:
    return PROTOCOLS[request.param]


def test_the_reserve_reaches_the_sampling_params(protocol):
    params = protocol.params(**{protocol.max_tokens: 100, FIELD: 20})
    assert params.reasoning_answer_reserve == 20


def test_a_request_without_the_field_leaves_it_unset(protocol):
    assert protocol.params().reasoning_answer_reserve is None


@pytest.mark.parametrize("off", [0, -1])
def test_turned_off_is_not_the_same_as_unset(protocol, off):
    assert protocol.params(**{FIELD: off}).reasoning_answer_reserve == 0


def test_a_reserve_that_leaves_nothing_for_reasoning_is_refused(protocol):
    with pytest.raises(VLLMValidationError, match="less than max_tokens=50") as error:
        protocol.params(**{protocol.max_tokens: 50, FIELD: 50})
    assert (error.value.parameter, error.value.value) == (FIELD, 50)


@pytest.mark.parametrize("value", [True, 12.5, "12", -2])
def test_a_value_that_is_no_number_of_tokens_is_refused(protocol, value):
    with pytest.raises(VLLMValidationError, match="positive integer") as error:
        protocol.params(**{FIELD: value})
    assert error.value.parameter == FIELD


@pytest.mark.parametrize("name", ["chat", "batch chat", "responses", "generate"])
def test_a_reserve_larger_than_a_default_of_max_tokens_is_accepted(name):
    # None of these sends max_tokens: what the context leaves counts.
    assert PROTOCOLS[name].params(**{FIELD: 500}).reasoning_answer_reserve == 500


def test_a_prefill_only_leg_keeps_the_reserve_of_its_request(protocol):
    leg = {
        protocol.max_tokens: 1,
        "kv_transfer_params": {"do_remote_decode": True},
        FIELD: 20,
    }
    assert protocol.params(**leg).reasoning_answer_reserve == 20


@pytest.mark.parametrize("place", ["chat_template_kwargs", "vllm_xargs", "extra_body"])
def test_a_misplaced_reserve_is_answered_with_where_it_belongs(protocol, place):
    with pytest.raises(VLLMValidationError) as error:
        protocol.params(**{place: {FIELD: 20}})
    assert error.value.parameter == FIELD
    home = "in sampling_params" if protocol.parse is parse_generate else "top level"
    assert place in str(error.value) and home in str(error.value)


def test_a_reserve_inside_thinking_is_answered_with_where_it_belongs():
    thinking = {"type": "adaptive", FIELD: 20}
    with pytest.raises(VLLMValidationError, match="not read in thinking"):
        PROTOCOLS["messages"].params(thinking=thinking)


def test_a_reserve_beside_sampling_params_is_answered_with_where_it_belongs():
    body = {"token_ids": [5], "sampling_params": {}, FIELD: 20}
    with pytest.raises(VLLMValidationError, match="Put it in sampling_params"):
        GenerateRequest.model_validate(body)


def test_metadata_is_the_clients_own():
    assert PROTOCOLS["responses"].params(metadata={FIELD: "20"})


@pytest.mark.parametrize("name", ["chat", "batch chat", "completion", "responses"])
def test_both_limits_reach_the_sampling_params(name):
    protocol = PROTOCOLS[name]
    limits = {FIELD: 20, "thinking_token_budget": 30}
    params = protocol.params(**{protocol.max_tokens: 100} | limits)
    assert (params.reasoning_answer_reserve, params.thinking_token_budget) == (20, 30)


def test_thinking_and_a_reserve_go_together_on_messages():
    params = PROTOCOLS["messages"].params(
        max_tokens=4096,
        thinking={"type": "enabled", "budget_tokens": 2048},
        reasoning_answer_reserve=512,
    )
    assert params.reasoning_answer_reserve == 512
    assert params.thinking_token_budget == 2048


@pytest.mark.parametrize("name", ["chat", "completion"])
def test_beam_search_with_a_reserve_is_refused(name):
    protocol = PROTOCOLS[name]
    request = protocol.parse(protocol.body | {"use_beam_search": True, FIELD: 20})
    with pytest.raises(VLLMValidationError, match="not supported with beam search"):
        request.to_beam_search_params(ROOM, {})


@pytest.mark.parametrize("name", ["chat", "completion"])
def test_beam_search_with_the_reserve_turned_off_is_accepted(name):
    protocol = PROTOCOLS[name]
    request = protocol.parse(protocol.body | {"use_beam_search": True, FIELD: 0})
    assert request.to_beam_search_params(ROOM, {}).max_tokens == ROOM
