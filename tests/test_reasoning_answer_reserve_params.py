# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The sampling parameter `reasoning_answer_reserve` and what it refuses."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

FIELD = "reasoning_answer_reserve"
PREFILL_LEG = {"kv_transfer_params": {"do_remote_decode": True}}
DECODE_LEG = {"kv_transfer_params": {"do_remote_prefill": True}}


def refusal(**kwargs: Any) -> VLLMValidationError:
    """The error that these sampling parameters raise, which names the field."""
    with pytest.raises(VLLMValidationError) as raised:
        SamplingParams(**kwargs)
    error = raised.value
    assert error.parameter == FIELD
    assert error.value == kwargs[FIELD] and FIELD in str(error)
    return error


def test_the_reserve_is_unset_by_default():
    assert SamplingParams().reasoning_answer_reserve is None
    assert SamplingParams.from_optional().reasoning_answer_reserve is None


@pytest.mark.parametrize("make", [SamplingParams, SamplingParams.from_optional])
@pytest.mark.parametrize(
    "given, stored",
    [(None, None), (0, 0), (-1, 0), (1, 1), (512, 512)],
)
def test_a_reserve_is_stored_and_an_explicit_off_is_told_from_unset(
    make, given, stored
):
    params = make(max_tokens=1024, reasoning_answer_reserve=given)
    assert params.reasoning_answer_reserve == stored


def test_the_repr_shows_the_reserve():
    assert f"{FIELD}=77" in repr(SamplingParams(max_tokens=99, **{FIELD: 77}))
    assert f"{FIELD}=None" in repr(SamplingParams())


@pytest.mark.parametrize("skip_clone", [False, True])
def test_a_clone_keeps_the_reserve_and_can_be_changed_on_its_own(skip_clone):
    params = SamplingParams(
        max_tokens=64, reasoning_answer_reserve=16, skip_clone=skip_clone
    )
    clone = params.clone()
    assert clone.reasoning_answer_reserve == 16
    clone.reasoning_answer_reserve = 8
    assert params.reasoning_answer_reserve == 16


@pytest.mark.parametrize("reserve", [None, 0, 16])
def test_the_reserve_survives_the_way_to_the_engine(reserve):
    params = SamplingParams(max_tokens=64, reasoning_answer_reserve=reserve)
    decoder = MsgpackDecoder(SamplingParams)
    arrived = decoder.decode(MsgpackEncoder().encode(params))
    assert arrived.reasoning_answer_reserve == reserve
    assert arrived == params


def test_params_sent_by_a_sender_without_the_field_leave_it_unset():
    sent = msgspec.to_builtins(SamplingParams(max_tokens=64))
    assert sent.pop(FIELD, None) is None
    arrived = msgspec.convert(sent, SamplingParams)
    assert arrived.reasoning_answer_reserve is None


@pytest.mark.parametrize("value", [True, False, 16.0, 0.5, "16", "", [16], -2, -100])
def test_a_value_that_is_no_number_of_tokens_is_refused(value):
    assert repr(value) in str(refusal(reasoning_answer_reserve=value))


@pytest.mark.parametrize("reserve, max_tokens", [(16, 16), (17, 16), (1, 1)])
def test_a_reserve_that_leaves_no_token_for_reasoning_is_refused(reserve, max_tokens):
    error = refusal(reasoning_answer_reserve=reserve, max_tokens=max_tokens)
    assert f"max_tokens={max_tokens}" in str(error)


def test_the_default_of_max_tokens_is_a_limit_as_well():
    default = SamplingParams().max_tokens
    assert default is not None
    refusal(reasoning_answer_reserve=default)


def test_a_reserve_below_min_tokens_is_refused():
    error = refusal(reasoning_answer_reserve=16, min_tokens=17, max_tokens=64)
    assert "min_tokens=17" in str(error)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_tokens": 17}, id="one token for reasoning"),
        pytest.param({"max_tokens": None}, id="max_tokens unset"),
        pytest.param({"max_tokens": 64, "min_tokens": 16}, id="min_tokens inside it"),
        pytest.param({"max_tokens": 64, "thinking_token_budget": 0}, id="zero budget"),
        pytest.param(
            {"max_tokens": 64, "thinking_token_budget": 10**6}, id="large budget"
        ),
    ],
)
def test_a_reserve_is_accepted_with_limits_that_leave_it_room(limits):
    params = SamplingParams(reasoning_answer_reserve=16, **limits)
    assert params.reasoning_answer_reserve == 16
    for name, value in limits.items():
        assert getattr(params, name) == value


@pytest.mark.parametrize("off", [None, 0, -1])
def test_a_reserve_that_is_off_is_checked_against_nothing(off):
    SamplingParams(reasoning_answer_reserve=off, max_tokens=1, min_tokens=1)


def test_a_prefill_only_leg_keeps_the_reserve_of_the_whole_request():
    params = SamplingParams(
        max_tokens=1, reasoning_answer_reserve=16, extra_args=PREFILL_LEG
    )
    assert params.reasoning_answer_reserve == 16


def test_a_decode_leg_is_held_to_max_tokens():
    refusal(max_tokens=1, reasoning_answer_reserve=16, extra_args=DECODE_LEG)


def verify_trace_replay(params: SamplingParams) -> None:
    model_config = SimpleNamespace(
        enable_trace_replay=True, max_model_len=512, get_vocab_size=lambda: 100
    )
    params._validate_trace_replay(model_config, None)


def test_trace_replay_is_refused_with_a_reserve():
    params = SamplingParams(
        max_tokens=64, reasoning_answer_reserve=16, trace_decode_token_ids=[1, 2]
    )
    with pytest.raises(VLLMValidationError, match="trace_decode_token_ids") as raised:
        verify_trace_replay(params)
    assert (raised.value.parameter, raised.value.value) == (FIELD, 16)


@pytest.mark.parametrize("off", [None, 0, -1])
def test_trace_replay_is_accepted_where_the_reserve_is_off(off):
    verify_trace_replay(
        SamplingParams(
            max_tokens=64, reasoning_answer_reserve=off, trace_decode_token_ids=[1, 2]
        )
    )
