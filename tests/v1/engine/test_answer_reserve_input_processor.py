# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the reserve closes, resolved once the prompt and the markers are known."""

import pytest

from tests.answer_reserve_utils import ENGINE_OPTIONS, MAX_MODEL_LEN, TINY_REASONER
from vllm import SamplingParams
from vllm.config import ReasoningConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs.engine import tokens_input
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.input_processor import InputProcessor

FIELD = "reasoning_answer_reserve"
PHRASE = "I must answer now.</think>"


def input_processor(**options) -> InputProcessor:
    args = EngineArgs(model=TINY_REASONER, **(ENGINE_OPTIONS | options))
    return InputProcessor(args.create_engine_config())


@pytest.fixture(scope="module")
def processor():
    return input_processor()


@pytest.fixture(scope="module")
def phrase_processor():
    """The forced reasoning end is many tokens."""
    return input_processor(reasoning_config=ReasoningConfig(reasoning_end_str=PHRASE))


def num_close_tokens(processor: InputProcessor) -> int:
    return len(processor.vllm_config.reasoning_config.reasoning_end_token_ids)


def process(
    processor: InputProcessor, params: SamplingParams, prompt_len: int = 10
) -> EngineCoreRequest:
    prompt = tokens_input([5] * prompt_len)
    return processor.process_inputs("0", prompt, params, ("generate",))


def resolved(
    processor: InputProcessor, prompt_len: int = 10, **params
) -> SamplingParams:
    return process(processor, SamplingParams(**params), prompt_len).sampling_params


# Prompt length, max_tokens, reserve: output length at which the reserve closes.
EFFECTIVE_LIMITS = [
    pytest.param(10, 100, 16, 84, id="max_tokens fits the context"),
    pytest.param(
        10, 10_000, 16, MAX_MODEL_LEN - 10 - 16, id="reaches past the context"
    ),
    pytest.param(10, None, 16, MAX_MODEL_LEN - 10 - 16, id="max_tokens unset"),
    pytest.param(MAX_MODEL_LEN - 40, 100, 16, 24, id="long prompt"),
    pytest.param(MAX_MODEL_LEN - 40, None, 16, 24, id="long prompt, max_tokens unset"),
    pytest.param(MAX_MODEL_LEN - 16, 100, 16, 0, id="room for the reserve alone"),
    pytest.param(MAX_MODEL_LEN - 8, 100, 16, 0, id="less room than the reserve"),
    pytest.param(MAX_MODEL_LEN - 8, None, 400, 0, id="far less room than the reserve"),
]


@pytest.mark.parametrize("prompt_len, max_tokens, reserve, close_len", EFFECTIVE_LIMITS)
def test_the_reserve_is_counted_back_from_what_the_request_can_produce(
    processor, prompt_len, max_tokens, reserve, close_len
):
    params = resolved(
        processor, prompt_len, max_tokens=max_tokens, reasoning_answer_reserve=reserve
    )
    assert params._reasoning_close_len == close_len
    assert params.reasoning_answer_reserve == reserve


@pytest.mark.parametrize(
    "which, extra_tokens, close_len",
    [
        ("processor", 0, None),
        ("processor", 1, 0),
        ("phrase_processor", -1, None),
        ("phrase_processor", 0, None),
        ("phrase_processor", 1, 0),
    ],
)
def test_a_context_in_which_the_close_does_not_fit_arms_nothing(
    request, which, extra_tokens, close_len
):
    processor = request.getfixturevalue(which)
    params = resolved(
        processor,
        MAX_MODEL_LEN - num_close_tokens(processor) - extra_tokens,
        max_tokens=64,
        reasoning_answer_reserve=32,
    )
    assert params._reasoning_close_len == close_len
    assert bool(params.reasoning_answer_reserve) == (close_len is not None)


def test_a_prefill_only_leg_arms_nothing(processor):
    params = resolved(
        processor,
        max_tokens=1,
        reasoning_answer_reserve=16,
        extra_args={"kv_transfer_params": {"do_remote_decode": True}},
    )
    assert params._reasoning_close_len is None


@pytest.mark.parametrize("off", [None, 0, -1])
def test_a_request_without_a_reserve_is_not_touched(processor, off):
    params = SamplingParams(max_tokens=100, reasoning_answer_reserve=off)
    arrived = process(processor, params).sampling_params
    assert arrived._reasoning_close_len is None
    assert arrived.reasoning_answer_reserve == params.reasoning_answer_reserve


def test_the_reserve_and_the_budget_are_not_held_against_each_other(processor):
    for budget in (0, 10, 10**6):
        params = resolved(
            processor,
            max_tokens=100,
            reasoning_answer_reserve=16,
            thinking_token_budget=budget,
        )
        assert params._reasoning_close_len == 84
        assert params.thinking_token_budget == budget


@pytest.mark.parametrize("skip_clone", [False, True])
def test_params_shared_by_prompts_are_resolved_for_each_and_stay_as_they_were(
    processor, skip_clone
):
    params = SamplingParams(
        max_tokens=100, reasoning_answer_reserve=16, skip_clone=skip_clone
    )
    before = repr(params), params.max_tokens, params._reasoning_close_len
    lengths = {10: 84, MAX_MODEL_LEN - 40: 24, MAX_MODEL_LEN - 1: None, 20: 84}
    for prompt_len, close_len in lengths.items():
        arrived = process(processor, params, prompt_len).sampling_params
        assert arrived._reasoning_close_len == close_len
    assert (repr(params), params.max_tokens, params._reasoning_close_len) == before


def test_resolved_params_can_be_processed_again(processor):
    once = resolved(processor, max_tokens=10_000, reasoning_answer_reserve=16)
    again = process(processor, once, prompt_len=20).sampling_params
    assert again._reasoning_close_len == MAX_MODEL_LEN - 20 - 16


@pytest.mark.parametrize("which", ["processor", "phrase_processor"])
def test_a_reserve_that_the_close_alone_would_use_up_is_refused(request, which):
    processor = request.getfixturevalue(which)
    length = num_close_tokens(processor)
    for reserve in range(1, length + 1):
        with pytest.raises(VLLMValidationError, match=f"{length} token") as raised:
            resolved(processor, max_tokens=100, reasoning_answer_reserve=reserve)
        assert (raised.value.parameter, raised.value.value) == (FIELD, reserve)
    params = resolved(processor, max_tokens=100, reasoning_answer_reserve=length + 1)
    assert params._reasoning_close_len == 100 - (length + 1)


def test_a_reserve_is_refused_where_reasoning_is_not_enabled():
    processor = input_processor(reasoning_parser="")
    for off in (None, 0, -1):
        resolved(processor, max_tokens=100, reasoning_answer_reserve=off)
    with pytest.raises(VLLMValidationError, match="--reasoning-parser") as raised:
        resolved(processor, max_tokens=100, reasoning_answer_reserve=16)
    assert (raised.value.parameter, raised.value.value) == (FIELD, 16)
    with pytest.raises(VLLMValidationError) as of_budget:
        resolved(processor, max_tokens=100, thinking_token_budget=16)
    ours, theirs = (str(e.value).split(" (parameter=")[0] for e in (raised, of_budget))
    assert ours == theirs.replace("thinking_token_budget", FIELD)
