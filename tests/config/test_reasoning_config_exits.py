# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a `ReasoningConfig` knows about leaving a block, from its parser."""

import pytest

from tests.answer_reserve_utils import TINY_REASONER
from vllm.config import ModelConfig, ReasoningConfig
from vllm.tokenizers import cached_tokenizer_from_config


@pytest.fixture(scope="module")
def model_config():
    return ModelConfig(model=TINY_REASONER, max_model_len=512)


@pytest.fixture(scope="module")
def token_ids(model_config):
    """Look up the ids of a text in the model's vocabulary."""
    tokenizer = cached_tokenizer_from_config(model_config=model_config)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture
def reasoning_config(model_config):
    """Make a config whose token ids are initialised."""

    def make(**options) -> ReasoningConfig:
        config = ReasoningConfig(**options)
        config.initialize_token_ids(model_config)
        assert config.enabled
        return config

    return make


# Parser; texts of its exits; texts of its turn boundaries; starts in reasoning.
PARSERS = [
    ("qwen3", ["</think>", "<tool_call>"], ["<|im_start|>", "<|im_end|>"], True),
    ("deepseek_r1", ["</think>"], [], True),
    ("step3", ["</think>"], [], False),
]


@pytest.mark.parametrize("parser, exits, boundaries, starts_inside", PARSERS)
def test_a_parser_tells_exits_turn_boundaries_and_where_output_starts(
    reasoning_config, token_ids, parser, exits, boundaries, starts_inside
):
    config = reasoning_config(reasoning_parser=parser)
    assert config.reasoning_exit_token_ids == [token_ids(text) for text in exits]
    assert sorted(config.turn_boundary_token_ids) == sorted(
        token_id for text in boundaries for token_id in token_ids(text)
    )
    assert config.starts_in_reasoning is starts_inside


@pytest.mark.parametrize("parser", [entry[0] for entry in PARSERS])
def test_the_natural_end_is_the_first_exit(reasoning_config, parser):
    config = reasoning_config(reasoning_parser=parser)
    natural_end = config.natural_reasoning_end_token_ids
    assert config.reasoning_exit_token_ids[0] == natural_end
    assert natural_end not in config.reasoning_exit_token_ids[1:]


@pytest.mark.parametrize("parser, exits", [entry[:2] for entry in PARSERS])
def test_a_phrase_in_the_forced_end_changes_no_exit(
    reasoning_config, token_ids, parser, exits
):
    phrase = "I must answer now.</think>"
    config = reasoning_config(reasoning_parser=parser, reasoning_end_str=phrase)
    assert config.reasoning_end_token_ids == token_ids(phrase)
    assert config.reasoning_exit_token_ids == [token_ids(text) for text in exits]


def test_strings_alone_leave_the_end_as_the_only_exit(reasoning_config, token_ids):
    config = reasoning_config(
        reasoning_start_str="<think>", reasoning_end_str="So.</think>"
    )
    assert config.reasoning_exit_token_ids == [token_ids("So.</think>")]
    assert config.turn_boundary_token_ids == []
    assert config.starts_in_reasoning is False


def test_a_config_without_markers_has_no_exits():
    config = ReasoningConfig()
    assert not config.enabled
    assert config.reasoning_exit_token_ids == []
    assert config.turn_boundary_token_ids == []
    assert config.starts_in_reasoning is False
