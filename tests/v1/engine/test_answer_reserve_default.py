# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The server's default of `reasoning_answer_reserve`."""

import logging
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from tests.answer_reserve_utils import ENGINE_OPTIONS, MAX_MODEL_LEN, TINY_REASONER
from vllm import SamplingParams
from vllm.config import ReasoningConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs.engine import tokens_input
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.answer_reserve import resolve_answer_reserve
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.sample.reasoning_limits import default_answer_reserve

DEFAULT = 64
PROMPT_LEN = 10


def input_processor(**options) -> InputProcessor:
    args = EngineArgs(model=TINY_REASONER, **(ENGINE_OPTIONS | options))
    return InputProcessor(args.create_engine_config())


@pytest.fixture(scope="module")
def processor():
    return input_processor(reasoning_config={"answer_reserve": DEFAULT})


def close_len(processor: InputProcessor, **params) -> int | None:
    """Where the reserve of a request closes, None where it has none."""
    request = processor.process_inputs(
        "0", tokens_input([5] * PROMPT_LEN), SamplingParams(**params), ("generate",)
    )
    return request.sampling_params._reasoning_close_len


@pytest.mark.parametrize(
    "max_tokens, expected",
    [
        pytest.param(200, 200 - DEFAULT, id="the default fits"),
        pytest.param(2 * DEFAULT, DEFAULT, id="exactly half"),
        pytest.param(100, 50, id="at most half"),
        pytest.param(101, 51, id="at most half, rounded down"),
        pytest.param(None, MAX_MODEL_LEN - PROMPT_LEN - DEFAULT, id="max_tokens unset"),
        pytest.param(
            10_000, MAX_MODEL_LEN - PROMPT_LEN - DEFAULT, id="reaches past the context"
        ),
        pytest.param(3, None, id="half holds the close alone"),
        pytest.param(1, None, id="health probe"),
    ],
)
def test_a_request_that_leaves_it_unset_keeps_the_default(
    processor, max_tokens, expected
):
    assert close_len(processor, max_tokens=max_tokens) == expected


@pytest.mark.parametrize("off", [0, -1])
def test_a_request_can_turn_it_off(processor, off):
    assert close_len(processor, max_tokens=200, reasoning_answer_reserve=off) is None


def test_a_request_can_ask_for_another_reserve(processor):
    params = {"max_tokens": 200, "reasoning_answer_reserve": 150}
    assert close_len(processor, **params) == 50


def test_an_answer_that_must_be_longer_than_the_default_is_left_alone(processor):
    assert close_len(processor, max_tokens=200, min_tokens=DEFAULT + 1) is None
    assert close_len(processor, max_tokens=200, min_tokens=DEFAULT) is not None


def test_the_params_of_the_caller_are_not_changed(processor):
    params = SamplingParams(max_tokens=200)
    processor.process_inputs("0", tokens_input([5]), params, ("generate",))
    assert params.reasoning_answer_reserve is None
    assert params._reasoning_close_len is None


def test_a_replayed_trace_is_left_alone(processor):
    # Replay itself needs model runner V2.
    params = SamplingParams(max_tokens=200, trace_decode_token_ids=[5] * 200)
    resolve_answer_reserve(params, PROMPT_LEN, processor.vllm_config)
    assert params._reasoning_close_len is None


def test_a_fraction_is_taken_of_what_the_request_can_produce():
    processor = input_processor(reasoning_config={"answer_reserve": 0.15})
    assert close_len(processor, max_tokens=200) == 170
    assert close_len(processor, max_tokens=10_000) == pytest.approx(
        0.85 * (MAX_MODEL_LEN - PROMPT_LEN), abs=1
    )


@pytest.mark.parametrize(
    "default, num_output_tokens, reserve",
    [(512, 4096, 512), (512, 600, 300), (512, 1, 0), (0.15, 1000, 150), (0.9, 100, 50)],
)
def test_the_default_is_never_more_than_half(default, num_output_tokens, reserve):
    assert default_answer_reserve(default, num_output_tokens) == reserve


@pytest.mark.parametrize("value", [-2, True, 12.5, "512", -0.5])
def test_a_default_that_is_no_reserve_is_refused(value):
    with pytest.raises(ValidationError, match="positive number of output tokens"):
        ReasoningConfig(answer_reserve=value)


def test_a_default_without_reasoning_is_refused_at_startup():
    with pytest.raises(ValueError, match="Please set --reasoning-parser"):
        input_processor(reasoning_parser="", reasoning_config={"answer_reserve": 64})


def test_a_default_that_the_close_would_use_up_is_refused_at_startup():
    config = ReasoningConfig(reasoning_end_str="So it is.</think>", answer_reserve=2)
    with pytest.raises(ValueError, match="the close alone would use it up"):
        input_processor(reasoning_config=config)


def messages(caplog) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


@pytest.fixture
def vllm_log(caplog, monkeypatch):
    """The log of vLLM; its messages that come once may come again."""
    from vllm.logger import _print_info_once, _print_warning_once

    _print_info_once.cache_clear()
    _print_warning_once.cache_clear()
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="vllm"):
        yield caplog


def test_the_default_is_logged_at_startup(vllm_log):
    input_processor(reasoning_config={"answer_reserve": 77})
    assert "unset, it is 77 tokens" in messages(vllm_log)


@pytest.mark.parametrize("options", [{}, {"reasoning_config": {"answer_reserve": 78}}])
def test_startup_says_that_the_rust_frontend_does_not_read_the_field(
    vllm_log, monkeypatch, options
):
    input_processor(**options)
    assert "Rust frontend" not in messages(vllm_log)
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    input_processor(**options)
    assert "a request's own reserve" in messages(vllm_log)


def add_to_engine(processor: InputProcessor, request: EngineCoreRequest):
    core = SimpleNamespace(
        vllm_config=processor.vllm_config,
        mm_receiver_cache=None,
        request_block_hasher=None,
        prefix_hash_config=None,
    )
    added, _ = EngineCore.preprocess_add_request(core, request)
    return added


@pytest.mark.parametrize(
    "params, expected",
    [
        pytest.param({}, 200 - DEFAULT, id="default"),
        pytest.param({"min_tokens": DEFAULT + 1}, None, id="one that cannot have it"),
    ],
)
def test_the_engine_applies_the_default_for_a_frontend_that_does_not_know_it(
    processor, params, expected
):
    request = EngineCoreRequest(
        request_id="0",
        prompt_token_ids=[5] * PROMPT_LEN,
        # As such a frontend sends them: without the field.
        sampling_params=SamplingParams(max_tokens=200, **params),
        pooling_params=None,
        mm_features=None,
        arrival_time=0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    added = add_to_engine(processor, request)
    assert added.sampling_params._reasoning_close_len == expected
    # It says nothing of a chat template.
    assert added.sampling_params._reasoning_needs_start_marker


@pytest.mark.parametrize("off", [0, -1])
def test_the_engine_leaves_a_request_that_was_settled_alone(processor, off):
    params = SamplingParams(max_tokens=200, reasoning_answer_reserve=off)
    request = processor.process_inputs(
        "0", tokens_input([5] * PROMPT_LEN), params, ("generate",)
    )
    added = add_to_engine(processor, request)
    assert added.sampling_params._reasoning_close_len is None


def test_the_generation_config_can_set_it():
    processor = input_processor(
        override_generation_config={"reasoning_answer_reserve": 32}
    )
    assert close_len(processor, max_tokens=200) == 168
    assert close_len(processor, max_tokens=40) == 20
    assert close_len(processor, max_tokens=200, reasoning_answer_reserve=0) is None


def test_a_models_generation_config_can_set_it(tmp_path):
    tmp_path.joinpath("generation_config.json").write_text(
        '{"reasoning_answer_reserve": 32}'
    )
    processor = input_processor(generation_config=str(tmp_path))
    assert close_len(processor, max_tokens=200) == 168


def test_the_reasoning_config_comes_before_the_generation_config():
    processor = input_processor(
        reasoning_config={"answer_reserve": 50},
        override_generation_config={"reasoning_answer_reserve": 32},
    )
    assert close_len(processor, max_tokens=200) == 150


@pytest.mark.parametrize("off", [0, -1])
def test_the_reasoning_config_can_turn_the_generation_configs_off(off):
    processor = input_processor(
        reasoning_config={"answer_reserve": off},
        override_generation_config={"reasoning_answer_reserve": 32},
    )
    assert close_len(processor, max_tokens=200) is None


def test_a_generation_config_without_reasoning_is_refused_at_startup():
    with pytest.raises(ValueError, match="reasoning is not enabled"):
        input_processor(
            reasoning_parser="",
            override_generation_config={"reasoning_answer_reserve": 32},
        )


def test_a_models_generation_config_does_not_stop_an_engine_without_reasoning(tmp_path):
    tmp_path.joinpath("generation_config.json").write_text(
        '{"reasoning_answer_reserve": 32}'
    )
    processor = input_processor(reasoning_parser="", generation_config=str(tmp_path))
    assert close_len(processor, max_tokens=200) is None
