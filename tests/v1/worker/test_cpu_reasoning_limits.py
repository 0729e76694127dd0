# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runner V2 for CPUs forces what the naive reference forces, when due."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.v1.sample.reasoning_limits_strategies import (
    Request,
    marker_sets,
    requests,
)
from tests.v1.worker.cpu_thinking_budget_driver import (
    HAS_CPU_RUNNER,
    CPUStateBatch,
    CPUThinkingBudgetState,
)
from tests.v1.worker.slot_batch import (
    END,
    FORCED_LOGIT,
    PHRASE_FIRST,
    PHRASE_LAST,
    PLAIN,
    THINK,
    TOOL,
    VOCAB_SIZE,
    WORD,
    request_of,
)
from vllm import SamplingParams
from vllm.v1.sample.reasoning_limits import ReasoningBlockScan


def _started(*started: Request, max_model_len: int = 256) -> CPUStateBatch:
    batch = CPUStateBatch(
        started[0].markers, max_model_len=max_model_len, vocab_size=VOCAB_SIZE
    )
    for request in started:
        batch.add(request)
    return batch


def _step(batch: CPUStateBatch, token: int = WORD) -> None:
    for request in batch.requests:
        request.output.append(token)
    batch.commit()


@pytest.fixture
def num_read(monkeypatch) -> list[int]:
    """Tokens of each reading of a scan."""
    num_read: list[int] = []
    extend = ReasoningBlockScan.extend

    def record(self, token_ids) -> None:
        num_read.append(len(token_ids))
        extend(self, token_ids)

    monkeypatch.setattr(ReasoningBlockScan, "extend", record)
    return num_read


# --- What is forced -------------------------------------------------------------


@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_batch_forces_exactly_what_the_reference_forces(
    data, random: Random, num_spec_tokens
):
    markers = data.draw(marker_sets())
    waiting = data.draw(st.lists(requests(markers), min_size=1, max_size=4))
    num_steps = data.draw(st.integers(1, 12))
    batch = CPUStateBatch(markers)
    batch.hold_against_reference(waiting, num_steps, num_spec_tokens, random)


@given(st.data(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_both_hosts_force_the_same_tokens(data, random: Random, num_spec_tokens):
    markers = data.draw(marker_sets())
    batch = data.draw(st.lists(requests(markers), min_size=1, max_size=3))
    num_steps = data.draw(st.integers(1, 8))
    CPUStateBatch(markers).hold_against_holder(
        batch, num_steps, num_spec_tokens, random
    )


@given(st.data(), st.randoms(use_true_random=False))
def test_logits_are_asked_for_in_every_step_that_forces_a_token(data, random: Random):
    markers = data.draw(marker_sets())
    request = data.draw(requests(markers, limited=True))
    batch = CPUStateBatch(markers)
    batch.add(request)
    for _ in range(16):
        context = batch.context([request])
        is_due = batch.state.is_due(
            context.idx_mapping_np, context.seq_lens_upper_bound_np
        )
        assert is_due == (request.expected() != [None])
        request.accept([], random)
        batch.commit()


def test_a_forced_end_that_begins_with_the_natural_end_is_completed():
    request = request_of(PHRASE_LAST, [THINK], [WORD], close_len=1)
    batch = _started(request)
    for token in PHRASE_LAST.forced_end:
        assert batch.forced([request]) == [[token]]
        _step(batch, token)
    assert batch.forced([request]) == [[None]]


def test_nothing_is_forced_inside_a_tool_call():
    request = request_of(PLAIN, [THINK], [WORD, TOOL], budget=2, close_len=3)
    batch = _started(request)
    for _ in range(8):
        assert batch.forced([request]) == [[None]]
        _step(batch)


def test_padded_rows_are_left_alone():
    request = request_of(PLAIN, [THINK, WORD], budget=0)
    batch = _started(request)
    context = batch.context([request])
    for name, padding in (
        ("expanded_idx_mapping", -1),
        ("expanded_local_pos", 0),
        ("input_ids", 0),
    ):
        rows = getattr(context, name)
        setattr(context, name, torch.cat([rows, rows.new_full((2,), padding)]))
    logits = torch.zeros(3, VOCAB_SIZE)
    batch.state.apply(logits, context)
    assert logits.nonzero().tolist() == [[0, END]]
    assert logits[0, END] == FORCED_LOGIT


# --- Slots ----------------------------------------------------------------------


@pytest.mark.parametrize("num_forced", [0, 1, 2, 3])
def test_a_resumed_request_goes_on_where_it_was_preempted(num_forced):
    window = PHRASE_FIRST.forced_end
    request = request_of(PHRASE_FIRST, [THINK], [WORD, WORD], close_len=2)
    batch = _started(request)
    for token in window[:num_forced]:
        assert batch.forced([request]) == [[token]]
        _step(batch, token)

    batch.remove(request)
    other = request_of(PHRASE_FIRST, [WORD], close_len=0)
    batch.add(other)
    batch.add(request)
    assert batch.slot_of(request) != batch.slot_of(other)
    expected = [*window, None][num_forced]
    assert batch.forced([other, request]) == [[None], [expected]]


def test_a_reused_slot_forgets_the_request_before():
    inside = request_of(PLAIN, [THINK, WORD, WORD], budget=0)
    outside = request_of(PLAIN, [WORD, WORD, WORD], budget=0)
    unlimited = request_of(PLAIN, [THINK, WORD, WORD])
    batch = _started(inside)
    for request, expected in (
        (inside, END),
        (outside, None),
        (inside, END),
        (unlimited, None),
        (inside, END),
    ):
        batch.remove(batch.requests[0])
        batch.add(request)
        assert batch.slot_of(request) == 7
        assert batch.forced([request]) == [[expected]]


# --- Work only when due ---------------------------------------------------------


def test_steps_that_are_not_due_read_nothing(num_read):
    started = [
        request_of(PLAIN, [THINK], budget=1_000),
        request_of(PLAIN, [THINK], close_len=1_000),
        # A prompt beyond the budget whose block is closed.
        request_of(PLAIN, [THINK] + [WORD] * 2_000 + [END], budget=1_000),
        request_of(PLAIN, [THINK]),
    ]
    batch = _started(*started, max_model_len=4_000)
    num_read.clear()
    logits = torch.zeros(len(started), VOCAB_SIZE)
    for _ in range(1_000):
        batch.state.apply(logits, batch.context(started))
        _step(batch)
    assert not num_read and not logits.any()

    assert batch.forced(started) == [[END], [END], [None], [None]]
    assert sum(num_read) == 2 * 1_000


def test_each_token_is_read_once_after_the_limit(num_read):
    request = request_of(PLAIN, [THINK], [WORD, END], close_len=1)
    batch = _started(request)
    num_read.clear()
    for _ in range(100):
        assert batch.forced([request]) == [[None]]
        _step(batch)
    assert sum(num_read) < 100


def test_a_block_opened_in_the_reserve_is_closed_at_once():
    request = request_of(PLAIN, [WORD], close_len=2)
    batch = _started(request)
    for token in [WORD] * 8 + [THINK]:
        assert batch.forced([request]) == [[None]]
        _step(batch, token)
    assert batch.forced([request]) == [[END]]


def test_the_chunks_of_a_prefill_read_nothing_again(num_read):
    request = request_of(PLAIN, [THINK] + [WORD] * 9, budget=2, close_len=0)
    batch = _started(request)
    num_read.clear()
    for num_left in (8, 4, 1, 0):
        forced = batch.forced([request], [()], [num_left])
    assert forced == [[END]]
    assert not num_read


def test_a_step_reads_the_tokens_of_the_requests_that_are_due_only(num_read):
    due = request_of(PLAIN, [THINK], [WORD] * 3, budget=4)
    others = [request_of(PLAIN, [THINK], [WORD] * 3, budget=100) for _ in range(3)]
    batch = _started(due, *others)
    _step(batch)
    num_read.clear()
    assert batch.forced([due, *others]) == [[END], [None], [None], [None]]
    assert sum(num_read) == 1


def test_an_engine_without_reasoning_ignores_limits():
    batch = CPUStateBatch(PLAIN)
    state = CPUThinkingBudgetState(batch.req_states, None)
    assert not state.enabled
    assert not state.add_request(0, SamplingParams(thinking_token_budget=0))
    assert not state.is_due(np.array([0]), np.array([100]))


# --- The sampler ----------------------------------------------------------------

needs_cpu_runner = pytest.mark.skipif(
    not HAS_CPU_RUNNER, reason="this vLLM has no model runner V2 for CPUs"
)


def _sampled(request: Request, params: SamplingParams) -> CPUStateBatch:
    """A request in front of the whole sampler."""
    from vllm.v1.worker.cpu.sampler import CPUSampler

    batch = CPUStateBatch(request.markers, vocab_size=VOCAB_SIZE)
    batch.state = CPUSampler(
        vllm_config=SimpleNamespace(reasoning_config=request.markers.config),
        max_num_reqs=batch.req_states.max_num_reqs,
        vocab_size=VOCAB_SIZE,
        device=batch.device,
        req_states=batch.req_states,
    )
    batch.add(request, params)
    return batch


def _sample(batch: CPUStateBatch, logits: torch.Tensor) -> torch.Tensor:
    context = batch.context(batch.requests)
    return batch.state.apply_sampling_params(
        logits,
        context.expanded_idx_mapping,
        context.idx_mapping,
        context.idx_mapping_np,
        context.pos,
        context.input_ids,
        context.expanded_local_pos,
        context.seq_lens_upper_bound_np,
        # The sampler does it later.
        skip_top_k_top_p=True,
    )


@needs_cpu_runner
@pytest.mark.parametrize("limit", ["budget", "reserve"])
def test_the_sampler_copies_logits_while_a_token_is_forced_only(limit):
    params = SamplingParams(temperature=0.0)
    if limit == "budget":
        params.thinking_token_budget = 4
    else:
        params._reasoning_close_len = 3
    request = request_of(PHRASE_LAST, [THINK, WORD])
    batch = _sampled(request, params)

    logits = torch.zeros(1, VOCAB_SIZE, dtype=torch.bfloat16)
    for _ in range(3):
        assert _sample(batch, logits) is logits
        _step(batch)
    for token in PHRASE_LAST.forced_end:
        forced = _sample(batch, logits)
        assert forced.dtype == torch.float32
        assert forced[0].argmax() == token and forced[0, token] == FORCED_LOGIT
        _step(batch, token)
    assert _sample(batch, logits) is logits


@needs_cpu_runner
def test_no_sampling_parameter_beats_a_forced_token():
    params = SamplingParams(
        temperature=2.0,
        min_p=0.9,
        min_tokens=8,
        stop_token_ids=[END],
        logit_bias={END: -100.0, WORD: 100.0},
        repetition_penalty=2.0,
        frequency_penalty=2.0,
        presence_penalty=2.0,
        _bad_words_token_ids=[[END]],
        thinking_token_budget=0,
    )
    batch = _sampled(request_of(PLAIN, [THINK, WORD]), params)
    assert _sample(batch, torch.zeros(1, VOCAB_SIZE)).softmax(-1)[0, END] == 1.0
