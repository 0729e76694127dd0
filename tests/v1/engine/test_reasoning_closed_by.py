# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_closed_by`: what the output processor says of a finished output."""

from dataclasses import replace

import pytest

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreRequest,
    FinishReason,
)
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.sample.reasoning_limits import ReasoningMarkers

START, END, TOOL, TURN, WORD = 101, 102, 103, 104, 5
UNUSED = {"arrival_time": 0} | dict.fromkeys(
    (
        "mm_features",
        "pooling_params",
        "lora_request",
        "cache_salt",
        "data_parallel_rank",
    )
)
PROMPT = [TURN, WORD, WORD]


MARKERS = ReasoningMarkers(
    start=[START],
    forced_end=[END],
    natural_end=[END],
    implicit_ends=[[TOOL]],
    turn_boundaries=[TURN],
    starts_inside=False,
)


def reserve(close_len: int | None = None, **fields) -> SamplingParams:
    """Params as the input processor leaves them."""
    params = SamplingParams(max_tokens=100, detokenize=False, **fields)
    params._reasoning_close_len = close_len
    return params


class Engine:
    """An output processor that is fed tokens."""

    def __init__(self, markers=MARKERS, log_stats: bool = False):
        self.processor = OutputProcessor(
            None, log_stats=log_stats, reasoning_markers=markers
        )
        self.log_stats = log_stats

    def add(self, params: SamplingParams, prompt=PROMPT, request_id="0", **options):
        request = EngineCoreRequest(
            request_id=request_id,
            external_req_id=f"{request_id}-external",
            prompt_token_ids=prompt,
            sampling_params=params,
            **UNUSED,
        )
        self.processor.add_request(request, None, **options)

    def step(self, token_ids, finish_reason=None, request_id="0"):
        """Process new tokens; return the outputs and what was counted."""
        event = EngineCoreEvent(type=EngineCoreEventType.QUEUED, timestamp=0.0)
        output = EngineCoreOutput(
            request_id=request_id,
            new_token_ids=list(token_ids),
            finish_reason=finish_reason,
            events=[event],
        )
        stats = IterationStats() if self.log_stats else None
        processed = self.processor.process_outputs([output], 0.0, stats)
        return processed.request_outputs, stats


def closed_by(params: SamplingParams, token_ids, prompt=PROMPT, markers=MARKERS):
    engine = Engine(markers)
    engine.add(params, prompt)
    (output,), _ = engine.step(token_ids, FinishReason.LENGTH)
    return output.outputs[0].reasoning_closed_by


BLOCK = [START, *[WORD] * 8, END, WORD]
"""Closes at output position 9."""


@pytest.mark.parametrize(
    "params, expected",
    [
        pytest.param(reserve(9), "answer_reserve", id="at the edge"),
        pytest.param(reserve(10), "model", id="one token before the edge"),
        pytest.param(reserve(50), "model", id="long before the edge"),
        pytest.param(
            reserve(thinking_token_budget=8), "thinking_token_budget", id="budget"
        ),
        pytest.param(reserve(thinking_token_budget=9), "model", id="within budget"),
        pytest.param(
            reserve(50, thinking_token_budget=8),
            "thinking_token_budget",
            id="both, budget first",
        ),
        pytest.param(
            reserve(9, thinking_token_budget=50),
            "answer_reserve",
            id="both, reserve first",
        ),
        pytest.param(reserve(), None, id="no limit"),
    ],
)
def test_a_close_is_named_by_what_made_it(params, expected):
    assert closed_by(params, BLOCK) == expected


@pytest.mark.parametrize(
    "prompt, tokens, expected",
    [
        pytest.param(PROMPT, [START, WORD, WORD], None, id="never closed"),
        pytest.param(PROMPT, [WORD, WORD], None, id="never opened"),
        pytest.param(
            [*PROMPT, START], [WORD, END, WORD], "model", id="opened in prompt"
        ),
        pytest.param(
            [*PROMPT, START, END], [WORD, WORD], None, id="closed in the prompt"
        ),
        pytest.param(
            [START, *PROMPT], [WORD, END], None, id="marker of an earlier turn"
        ),
        pytest.param(PROMPT, [START, WORD, TOOL, WORD], "model", id="tool call"),
    ],
)
def test_a_block_is_judged_as_the_engine_judges_it(prompt, tokens, expected):
    assert closed_by(reserve(50), tokens, prompt) == expected


@pytest.mark.parametrize(
    "budget, tokens, expected",
    [
        pytest.param(None, [*[WORD] * 9, END], None, id="no start marker"),
        pytest.param(None, BLOCK, "answer_reserve", id="start marker"),
        pytest.param(9, [*[WORD] * 9, END], "thinking_token_budget", id="budget"),
    ],
)
def test_a_reserve_that_needs_a_start_marker_closes_no_other_block(
    budget, tokens, expected
):
    params = reserve(9, thinking_token_budget=budget)
    params._reasoning_needs_start_marker = True
    markers = replace(MARKERS, starts_inside=True)
    assert closed_by(params, tokens, markers=markers) == expected


def test_an_engine_without_reasoning_says_nothing():
    assert closed_by(reserve(), BLOCK, markers=None) is None


def test_only_the_last_delta_says_what_closed_the_block():
    engine = Engine()
    engine.add(reserve(9, output_kind=RequestOutputKind.DELTA))
    seen = []
    for index, token in enumerate(BLOCK):
        last = FinishReason.LENGTH if index == len(BLOCK) - 1 else None
        (output,), _ = engine.step([token], last)
        seen.append(output.outputs[0].reasoning_closed_by)
    assert seen == [None] * (len(BLOCK) - 1) + ["answer_reserve"]


def test_merged_deltas_keep_what_closed_the_block():
    engine = Engine()
    params = reserve(9, output_kind=RequestOutputKind.DELTA)
    queue = RequestOutputCollector(params.output_kind, "0")
    engine.add(params, queue=queue)
    engine.step(BLOCK[:-1])
    engine.step(BLOCK[-1:], FinishReason.LENGTH)
    (completion,) = queue.get_nowait().outputs
    assert list(completion.token_ids) == BLOCK
    assert completion.reasoning_closed_by == "answer_reserve"


def test_an_aborted_output_says_what_closed_its_block_so_far():
    engine = Engine()
    params = reserve(9)
    queue = RequestOutputCollector(params.output_kind, "0")
    engine.add(params, queue=queue)
    engine.step(BLOCK)
    engine.processor.abort_requests(["0"], internal=True)
    (completion,) = queue.get_nowait().outputs
    assert completion.finish_reason == "abort"
    assert completion.reasoning_closed_by == "answer_reserve"


def test_each_of_several_outputs_has_its_own_cause():
    engine = Engine()
    params = reserve(9, n=2, output_kind=RequestOutputKind.FINAL_ONLY)
    parent_request = EngineCoreRequest(
        request_id="p",
        external_req_id="p-external",
        prompt_token_ids=PROMPT,
        sampling_params=params,
        **UNUSED,
    )
    parent = ParentRequest(parent_request)
    for index in range(2):
        child_id, child_params = parent.get_child_info(index)
        engine.add(
            child_params,
            request_id=child_id,
            parent_req=parent,
            request_index=index,
        )
    engine.step(BLOCK, FinishReason.LENGTH, "0_p")
    (output,), _ = engine.step([START, WORD, END], FinishReason.STOP, "1_p")
    causes = [completion.reasoning_closed_by for completion in output.outputs]
    assert causes == ["answer_reserve", "model"]


def finished(params: SamplingParams, token_ids):
    engine = Engine(log_stats=True)
    engine.add(params)
    _, stats = engine.step(token_ids, FinishReason.LENGTH)
    (request,) = stats.finished_requests
    return request.reasoning_outcome


def test_the_stats_hold_how_reasoning_ended():
    outcome = finished(reserve(9), [*BLOCK, WORD, WORD])
    assert outcome.closed_by == "answer_reserve"
    assert outcome.num_answer_tokens == 3
    assert outcome.has_answer_reserve and not outcome.ended_inside


def test_the_stats_hold_that_an_output_ended_inside_its_block():
    outcome = finished(reserve(50), [START, WORD])
    assert outcome.ended_inside and outcome.closed_by is None


def test_a_budget_alone_is_no_reserve():
    assert not finished(reserve(thinking_token_budget=8), BLOCK).has_answer_reserve


def test_a_request_without_limits_has_no_outcome():
    assert finished(reserve(), BLOCK) is None
