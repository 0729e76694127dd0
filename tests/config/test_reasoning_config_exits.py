# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a `ReasoningConfig` knows about leaving a block, from its parser."""

import pytest

from tests.answer_reserve_utils import TINY_REASONER
from tools.reasoning_exits import parsers
from vllm.config import ModelConfig, ReasoningConfig
from vllm.reasoning import ReasoningParser, ReasoningParserManager
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


# Those that know the tokens on which alone their reasoning ends.
ENDING_ON_TOKENS = {
    name: (vocab, parser)
    for name, vocab, parser in parsers()
    if getattr(parser, "reasoning_end_token_ids", None)
}


def test_the_parsers_on_an_engine_know_their_ends():
    engine_based = {"glm47", "kimi_k2", "minimax_m2", "qwen3"}
    if "zaya" in ReasoningParserManager.list_registered():
        engine_based.add("zaya")
    assert engine_based <= ENDING_ON_TOKENS.keys()


@pytest.mark.parametrize("name", ENDING_ON_TOKENS)
def test_exits_are_where_the_parser_itself_ends_reasoning(name):
    vocab, parser = ENDING_ON_TOKENS[name]
    natural_end, word = vocab[parser.reasoning_end_str], vocab["word"]
    implicit_ends = parser.implicit_end_token_ids
    assert natural_end not in implicit_ends
    assert {natural_end, *implicit_ends} == parser.reasoning_end_token_ids
    for token_id in (natural_end, *implicit_ends):
        end = parser.find_reasoning_end([word, token_id, word])
        assert end == (1, token_id in implicit_ends)


@pytest.mark.skipif(
    not hasattr(ReasoningParser, "implicit_reasoning_end_token_ids"),
    reason="parsers of this vLLM tell no implicit ends by themselves",
)
def test_an_implicit_end_that_a_parser_tells_is_an_exit(
    reasoning_config, token_ids, monkeypatch
):
    parser_cls = ReasoningParserManager.get_reasoning_parser("step3")
    (tool_call,) = token_ids("<tool_call>")
    told = property(lambda _: frozenset({tool_call}))
    monkeypatch.setattr(parser_cls, "implicit_reasoning_end_token_ids", told)
    config = reasoning_config(reasoning_parser="step3")
    assert config.reasoning_exit_token_ids[1:] == [[tool_call]]


def test_k2_horizon_leaves_reasoning_for_its_tool_calls():
    ((vocab, parser),) = (p[1:] for p in parsers() if p[0] == "k2_horizon")
    assert parser.implicit_end_token_ids == [vocab["<ifm|tool_calls>"]]
