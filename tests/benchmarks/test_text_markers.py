# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reasoning marked in plain text is told from the answer."""

import pytest

from benchmarks.answer_reserve.text_markers import TextMarkersReasoningParser

from .scripted import CharTokenizer

TEXT = "1 + 1 < 3, so 2.\n</think>\n\n\\boxed{2}"


class Tokenizer(CharTokenizer):
    def get_vocab(self):
        return {"<|im_start|>": 7}


@pytest.fixture
def parser():
    return TextMarkersReasoningParser(Tokenizer())


def test_the_markers_stop_before_the_character_that_merges(parser):
    assert parser.reasoning_start_str == "<think"
    assert parser.reasoning_end_str == "</think"
    assert parser.turn_boundary_token_ids == [7]


def test_a_whole_output_is_split_at_the_end_marker(parser):
    reasoning, content = parser.extract_reasoning(TEXT, None)
    assert reasoning == "1 + 1 < 3, so 2.\n"
    assert content == "\\boxed{2}"


def test_without_an_end_marker_all_is_reasoning(parser):
    assert parser.extract_reasoning("so 2", None) == ("so 2", None)


def test_the_end_marker_is_found_in_token_ids(parser):
    ids = [*map(ord, TEXT)]
    assert parser.is_reasoning_end(ids)
    assert not parser.is_reasoning_end(ids[:20])
    content = parser.extract_content_ids(ids)
    assert "".join(map(chr, content)) == ">\n\n\\boxed{2}"
    assert parser.extract_content_ids(ids[:20]) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_streamed_pieces_add_up_to_the_whole_output(parser, size):
    reasoning = content = ""
    for begin in range(0, len(TEXT), size):
        previous, current = TEXT[:begin], TEXT[: begin + size]
        delta = parser.extract_reasoning_streaming(
            previous, current, current[begin:], [], [], []
        )
        if delta is not None:
            reasoning += delta.reasoning or ""
            content += delta.content or ""
    assert (reasoning, content) == parser.extract_reasoning(TEXT, None)
