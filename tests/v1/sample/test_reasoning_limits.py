# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a request with a reasoning limit is made to say, model runner V1.

A scripted model answers through the holder, called as the samplers call it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import Request
from tests.v1.sample.thinking_budget_driver import HolderBatch
from vllm.v1.sample.logits_processor.interface import BatchUpdate
from vllm.v1.sample.reasoning_limits import effective_max_tokens, reserve_close_len
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

VOCAB_SIZE = 100
THINK, END, TOOL, USER = 90, 91, 92, 93
PHRASE = [80, 81]
THOUGHT, ANSWER = 1, 2

PLAIN = Markers(start=[THINK], forced_end=[END], natural_end=[END])
PHRASE_THEN_END = replace(PLAIN, forced_end=[*PHRASE, END])
END_THEN_PHRASE = replace(PLAIN, forced_end=[END, *PHRASE])
LONG = Markers(
    start=[60, 61, 62],
    forced_end=[*PHRASE, 70, 71, 72],
    natural_end=[70, 71, 72],
)
WITH_TOOLS = replace(PHRASE_THEN_END, implicit_ends=[[TOOL]])
WITH_TURNS = replace(PLAIN, turn_boundaries=[USER])
STARTS_INSIDE = replace(WITH_TURNS, starts_inside=True)

Script = Sequence[int] | Callable[[int], int]


def generate(
    script: Script,
    num_tokens: int = 12,
    *,
    markers: Markers = PLAIN,
    prompt: Sequence[int] | None = (THINK,),
    budget: int | None = None,
    close_len: int | None = None,
    draft: Callable[[list[int], int], list[int]] | None = None,
    num_spec_tokens: int = 0,
    resume_before_each_step: bool = False,
) -> list[int]:
    """What a request says when the model wants ``script`` at each position.

    Past its end, the script says `THOUGHT` for ever. A draft is accepted where it is
    what decoding without drafts would choose.
    """

    def wanted(position: int) -> int:
        if callable(script):
            return script(position)
        return script[position] if position < len(script) else THOUGHT

    request = Request(
        markers,
        prompt=None if prompt is None else list(prompt),
        proposals=[],
        budget=budget,
        close_len=close_len,
    )
    batch = HolderBatch(markers, num_spec_tokens, vocab_size=VOCAB_SIZE)
    batch.update(add=[request])
    output = request.output
    while len(output) < num_tokens:
        if resume_before_each_step:
            batch.update(remove=[request])
            output = request.output = list(output)
            batch.update(add=[request])
        room = min(num_spec_tokens, num_tokens - len(output) - 1)
        drafts = draft(list(output), room) if draft else []
        (forced,) = batch.forced([drafts])
        for proposed, token in zip([*drafts, None], forced):
            token = wanted(len(output)) if token is None else token
            output.append(token)
            if token != proposed:
                break
    return output


def thoughts(n: int) -> list[int]:
    return [THOUGHT] * n


# Rule 1: the effective limit.


def test_the_effective_limit_is_what_the_context_leaves():
    assert effective_max_tokens(1000, max_model_len=512, prompt_len=200) == 312
    assert effective_max_tokens(100, max_model_len=512, prompt_len=200) == 100


def test_the_reserve_closes_at_the_effective_limit_less_the_reserve():
    assert reserve_close_len(50, num_output_tokens=312, num_close_tokens=3) == 262


def test_a_reserve_as_large_as_the_room_closes_at_once():
    assert reserve_close_len(50, num_output_tokens=40, num_close_tokens=3) == 0


@pytest.mark.parametrize("num_output_tokens", [1, 3])
def test_a_close_that_does_not_fit_is_not_begun(num_output_tokens):
    assert reserve_close_len(50, num_output_tokens, num_close_tokens=3) is None


# Rule 2: the trigger.


@pytest.mark.parametrize("close_len", [0, 1, 5])
def test_an_open_block_is_closed_at_the_close_length_exactly(close_len):
    output = generate([], 8, close_len=close_len)
    assert output == [*thoughts(close_len), END, *thoughts(7 - close_len)]


def test_the_close_is_part_of_the_reserve():
    max_tokens, reserve = 12, 6
    output = generate(
        [], max_tokens, markers=PHRASE_THEN_END, close_len=max_tokens - reserve
    )
    assert output[:9] == [*thoughts(6), *PHRASE, END]
    assert len(output[9:]) == reserve - len(PHRASE_THEN_END.forced_end)


def test_a_block_opened_inside_the_reserve_is_closed_right_after_its_start_marker():
    script = [ANSWER, ANSWER, ANSWER, THINK]
    output = generate(script, 6, prompt=[], close_len=2)
    assert output == [*script, END, THOUGHT]


def test_a_multi_token_start_marker_opens_the_block_at_its_last_token():
    script = [ANSWER, *LONG.start]
    output = generate(script, 11, markers=LONG, prompt=[], budget=2)
    assert output == [*script, *thoughts(2), *LONG.forced_end]


def test_a_start_marker_split_over_prompt_and_output_opens_the_block():
    output = generate([62], 6, markers=LONG, prompt=[60, 61], close_len=0)
    assert output == [62, *LONG.forced_end]


# Rule 3: inside.


def test_nothing_is_forced_inside_a_tool_call():
    script = [THOUGHT, TOOL, *[ANSWER] * 10]
    limits = {"budget": 3, "close_len": 4}
    assert generate(script, 12, markers=WITH_TOOLS, **limits) == script


def test_a_block_reopened_after_a_tool_call_is_closed():
    script = [TOOL, ANSWER, THINK]
    output = generate(script, 10, markers=WITH_TOOLS, close_len=5)
    assert output[:8] == [*script, *thoughts(2), *PHRASE, END]


def test_a_repeated_start_marker_does_not_restart_the_count():
    output = generate([THOUGHT, THINK], 6, budget=4)
    assert output == [THOUGHT, THINK, *thoughts(2), END, THOUGHT]


def test_a_start_marker_in_an_earlier_turn_opens_nothing():
    prompt = [USER, THINK, THOUGHT, USER, ANSWER]
    assert generate([], 6, markers=WITH_TURNS, prompt=prompt, budget=0) == thoughts(6)


def test_a_start_marker_after_the_last_turn_boundary_opens_a_block():
    prompt = [USER, END, USER, THINK]
    output = generate([], 3, markers=WITH_TURNS, prompt=prompt, budget=1)
    assert output == [THOUGHT, END, THOUGHT]


def test_a_turn_boundary_in_the_output_changes_nothing():
    output = generate([USER], 4, markers=WITH_TURNS, close_len=2)
    assert output == [USER, THOUGHT, END, THOUGHT]


@pytest.mark.parametrize(
    ("prompt", "is_inside"),
    [
        ([THINK, THOUGHT, END], False),
        ([END, THINK], True),
        ([THINK, END, THINK, THOUGHT], True),
        ([THINK, END, THINK, END, ANSWER], False),
    ],
)
def test_a_prompt_is_inside_if_its_last_start_comes_after_its_last_exit(
    prompt, is_inside
):
    output = generate([], 3, prompt=prompt, close_len=0)
    assert output == ([END, *thoughts(2)] if is_inside else thoughts(3))


@pytest.mark.parametrize(
    ("prompt", "num_thoughts"),
    [(None, 2), ([], 2), ([THINK, END, USER], 2), ([THINK, THOUGHT], 1)],
)
def test_a_parser_that_starts_in_reasoning_counts_from_the_start_marker_or_the_output(
    prompt, num_thoughts
):
    output = generate([], 4, markers=STARTS_INSIDE, prompt=prompt, budget=2)
    assert output[: num_thoughts + 1] == [*thoughts(num_thoughts), END]


def test_a_parser_that_starts_in_reasoning_is_outside_once_the_prompt_closed_it():
    output = generate([], 4, markers=STARTS_INSIDE, prompt=[USER, END], close_len=0)
    assert output == thoughts(4)


def test_an_unknown_prompt_leaves_blocks_of_the_output_limited():
    output = generate([THINK], 4, prompt=None, budget=1)
    assert output == [THINK, THOUGHT, END, THOUGHT]


def test_end_start_and_a_token_in_one_step_open_a_new_block():
    script = [THOUGHT, END, THINK, THOUGHT]
    output = generate(
        script,
        8,
        budget=3,
        num_spec_tokens=4,
        draft=lambda output, room: ([] if output else script)[:room],
    )
    assert output == [*script, *thoughts(2), END, THOUGHT]


# Rule 4: the forced window.


@pytest.mark.parametrize(
    "markers", [PLAIN, PHRASE_THEN_END, END_THEN_PHRASE, LONG], ids=str
)
def test_a_close_runs_to_its_end_wherever_the_natural_end_stands_in_it(markers):
    end = markers.forced_end
    output = generate([], 10, markers=markers, prompt=markers.start, close_len=3)
    assert output == [*thoughts(3), *end, *thoughts(7 - len(end))]


def test_a_phrase_without_a_natural_end_is_forced_once():
    markers = replace(PLAIN, forced_end=PHRASE)
    output = generate([], 8, markers=markers, close_len=2)
    assert output == [*thoughts(2), *PHRASE, *thoughts(4)]


@pytest.mark.parametrize("limits", [{"budget": 4}, {"close_len": 4}], ids=str)
@pytest.mark.parametrize("markers", [PHRASE_THEN_END, END_THEN_PHRASE], ids=str)
@pytest.mark.parametrize("num_thoughts", [0, 3])
def test_no_phrase_follows_a_natural_end(markers, limits, num_thoughts):
    script = [*thoughts(num_thoughts), END, *[ANSWER] * 9]
    assert generate(script, len(script), markers=markers, **limits) == script


def test_no_phrase_follows_a_natural_end_of_the_prompt():
    output = generate([], 5, markers=END_THEN_PHRASE, prompt=[THINK, END], close_len=0)
    assert output == thoughts(5)


@pytest.mark.parametrize("num_begun", [1, 2])
def test_a_natural_end_begun_at_the_edge_is_continued(num_begun):
    script = [THOUGHT, *LONG.natural_end[:num_begun]]
    output = generate(
        script, 6, markers=LONG, prompt=LONG.start, close_len=1 + num_begun
    )
    assert output == [THOUGHT, *LONG.natural_end, *thoughts(2)]


@pytest.mark.parametrize("num_begun", [1, 2, 3, 4])
def test_a_forced_end_begun_at_the_edge_is_continued(num_begun):
    script = [THOUGHT, *LONG.forced_end[:num_begun]]
    output = generate(
        script, 8, markers=LONG, prompt=LONG.start, close_len=1 + num_begun
    )
    assert output == [THOUGHT, *LONG.forced_end, *thoughts(2)]


def test_an_overlapping_beginning_is_continued_from_its_longest_match():
    markers = replace(PLAIN, forced_end=[7, 7, 8], natural_end=[7, 7, 8])
    output = generate([7, 7, 7], 5, markers=markers, close_len=3)
    assert output == [7, 7, 7, 8, THOUGHT]


@pytest.mark.parametrize("other", [float("-inf"), -1e4, 1e4])
def test_the_forced_token_wins_over_any_logit(other):
    batch = HolderBatch(PLAIN, vocab_size=VOCAB_SIZE)
    batch.update(add=[Request(PLAIN, [THINK], [], close_len=0)])
    batch.holder.update_state([[]], [[]])
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, THOUGHT], logits[0, END] = 1e4, other
    logits = batch.holder.apply_to_logits(logits, False, [[]])
    assert (logits / 2.0).softmax(-1)[0, END] == 1.0


def test_drafts_that_the_target_rejects_leave_the_phrase_whole():
    def draft(output: list[int], room: int) -> list[int]:
        return [*PHRASE[:1], ANSWER, END, ANSWER][:room]

    output = generate(
        [],
        10,
        markers=PHRASE_THEN_END,
        close_len=3,
        num_spec_tokens=4,
        draft=draft,
    )
    assert output == [*thoughts(3), *PHRASE, END, *thoughts(4)]


# Rule 5: both limits.


@pytest.mark.parametrize(("budget", "close_len"), [(2, 5), (5, 2), (2, 2)])
def test_the_earlier_of_both_limits_closes_the_block(budget, close_len):
    output = generate([], 6, budget=budget, close_len=close_len)
    assert output == [*thoughts(2), END, *thoughts(3)]


def test_the_budget_holds_for_each_block_and_the_reserve_for_the_whole():
    def script(position: int) -> int:
        return THINK if position in (4, 9) else THOUGHT

    output = generate(script, 12, budget=3, close_len=10)
    first = [*thoughts(3), END]
    second = [THINK, *thoughts(3), END]
    assert output == [*first, *second, THINK, END, THOUGHT]


def test_the_budget_counts_the_part_of_the_block_in_the_prompt():
    output = generate([], 4, prompt=[THINK, *thoughts(3)], budget=4)
    assert output == [THOUGHT, END, *thoughts(2)]


def test_a_budget_spent_in_the_prompt_closes_at_once():
    output = generate([], 3, prompt=[THINK, *thoughts(3)], budget=2)
    assert output == [END, *thoughts(2)]


@pytest.mark.parametrize("end", [[END], [70, 71, 72]], ids=str)
@pytest.mark.parametrize("num_between", [0, 3])
def test_a_block_after_a_forced_end_is_limited(end, num_between):
    markers = replace(PLAIN, forced_end=end, natural_end=end)
    script = [*thoughts(2), *end, *[ANSWER] * num_between, THINK]
    output = generate(script, len(script) + 2 + len(end), markers=markers, budget=2)
    assert output == [*script, *thoughts(2), *end]


@pytest.mark.parametrize("end", [[END], [70, 71, 72]], ids=str)
@pytest.mark.parametrize("num_between", [0, 3])
@pytest.mark.parametrize("num_thoughts", [[0], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("opener", ["prompt", "output"])
def test_a_block_after_natural_ends_is_limited(end, num_between, num_thoughts, opener):
    markers = replace(PLAIN, forced_end=end, natural_end=end)
    budget = max(num_thoughts) + len(end)
    script = []
    for n in num_thoughts:
        script += [THINK, *thoughts(n), *end, *[ANSWER] * num_between]
    script.append(THINK)
    prompt = [script.pop(0)] if opener == "prompt" else []
    output = generate(
        script,
        len(script) + budget + len(end),
        markers=markers,
        prompt=prompt,
        budget=budget,
    )
    assert output == [*script, *thoughts(budget), *end]


def test_part_of_an_end_marker_in_the_answer_changes_nothing():
    script = [*LONG.natural_end, ANSWER, *LONG.natural_end[:2], ANSWER, *LONG.start]
    output = generate(script, 16, markers=LONG, prompt=LONG.start, budget=4)
    assert output == [*script, *thoughts(4), *LONG.forced_end][:16]


def test_an_answer_after_a_forced_end_is_left_alone():
    output = generate([], 30, markers=PHRASE_THEN_END, budget=3)
    assert output == [*thoughts(3), *PHRASE, END, *thoughts(24)]


def test_a_natural_end_after_a_long_block_is_seen():
    script = [THINK, *thoughts(500), END, THINK]
    output = generate(script, 512, prompt=[], budget=505)
    assert output == [*script, *thoughts(9)]
    assert generate(script, 1010, prompt=[], budget=505).index(END, 502) == 1008


# Rule 6: the same position everywhere.


def _script_with_everything(position: int) -> int:
    return {2: END, 5: THINK, 7: THINK, 12: THINK}.get(position, THOUGHT)


ALL_MARKERS = [PLAIN, PHRASE_THEN_END, END_THEN_PHRASE]
ALL_LIMITS = [{"budget": 3}, {"close_len": 9}, {"budget": 3, "close_len": 10}]


@pytest.mark.parametrize("num_spec_tokens", [1, 2, 3, 5])
@pytest.mark.parametrize("limits", ALL_LIMITS, ids=str)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
@pytest.mark.parametrize("num_right", [0, 1, 9])
def test_drafts_change_nothing(markers, limits, num_spec_tokens, num_right):
    plain = generate(_script_with_everything, 20, markers=markers, **limits)

    def draft(output: list[int], room: int) -> list[int]:
        coming = plain[len(output) : len(output) + room]
        return [*coming[:num_right], *[ANSWER] * room][:room]

    assert plain == generate(
        _script_with_everything,
        20,
        markers=markers,
        num_spec_tokens=num_spec_tokens,
        draft=draft,
        **limits,
    )


@pytest.mark.parametrize("limits", ALL_LIMITS, ids=str)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_preemption_before_every_step_changes_nothing(markers, limits):
    plain = generate(_script_with_everything, 20, markers=markers, **limits)
    assert plain == generate(
        _script_with_everything,
        20,
        markers=markers,
        resume_before_each_step=True,
        **limits,
    )


def _batch_of_one(output: list[int], num_spec_tokens: int = 0, **limits) -> HolderBatch:
    batch = HolderBatch(PHRASE_THEN_END, num_spec_tokens, vocab_size=VOCAB_SIZE)
    request = Request(PHRASE_THEN_END, [THINK], [], output=output, **limits)
    batch.update(add=[request])
    return batch


def test_a_request_resumed_amid_its_phrase_goes_on_with_it():
    batch = _batch_of_one([*thoughts(2), PHRASE[0]], close_len=2)
    assert batch.forced() == [[PHRASE[1]]]


def test_a_request_resumed_after_its_phrase_is_not_closed_again():
    batch = _batch_of_one([*thoughts(2), *PHRASE, END], close_len=2)
    assert batch.forced() == [[None]]


def test_a_request_resumed_in_a_reopened_block_is_closed():
    reopened = [*thoughts(2), *PHRASE, END, THINK, *thoughts(2)]
    assert _batch_of_one(reopened, budget=2).forced() == [[PHRASE[0]]]


def test_no_token_slips_through_while_a_prompt_is_prefilled_in_chunks():
    batch = _batch_of_one([], num_spec_tokens=2, budget=0)
    other = Request(PHRASE_THEN_END, [], [])
    batch.update(add=[other])
    # Each chunk samples a token that is dropped; another request has drafts.
    for _ in range(3):
        forced = batch.forced([[], [THOUGHT, THOUGHT]])
        assert forced == [[PHRASE[0]], [None, None, None]]


def test_output_taken_back_reopens_a_block():
    batch = _batch_of_one(thoughts(3), close_len=5)
    (request,) = batch.requests
    batch.forced()
    request.output += [END, ANSWER, ANSWER]
    assert batch.forced() == [[None]]
    # A failed KV transfer: the end and what followed are computed again.
    del request.output[3:]
    assert batch.forced() == [[None]]
    request.output += thoughts(2)
    assert batch.forced() == [[PHRASE[0]]]


def test_tokens_not_known_yet_do_not_count():
    batch = _batch_of_one([THOUGHT, -1, -1], close_len=2)
    (request,) = batch.requests
    assert batch.forced() == [[None]]
    request.output[1:] = [THOUGHT]
    assert batch.forced() == [[PHRASE[0]]]
    request.output[2:] = [*PHRASE, -1]
    assert batch.forced() == [[END]]


def test_requests_keep_their_limits_when_the_batch_is_reordered():
    batch = HolderBatch(PLAIN, vocab_size=VOCAB_SIZE)
    unset, due, later = (Request(PLAIN, [THINK], [], close_len=n) for n in (None, 0, 1))
    batch.update(add=[unset, due, later])
    assert batch.forced() == [[None], [END], [None]]
    batch.update(swaps=[(0, 1)])
    assert batch.forced() == [[END], [None], [None]]
    # The last request moves into the gap, and takes the place of the first.
    later.output.append(THOUGHT)
    batch.update(remove=[due])
    assert batch.requests == [later, unset]
    assert batch.forced() == [[END], [None]]
    batch.update(remove=[later])
    assert batch.forced() == [[None]]
    assert not batch.holder.has_tracked_requests()


def test_of_repeated_rows_the_last_of_a_request_counts():
    batch = _batch_of_one([], close_len=3)
    rows = [thoughts(1), thoughts(3)]
    for repeated, forced in ([rows, True], [rows[::-1], False]):
        batch.holder.update_state(repeated, None, torch.tensor([0, 0]))
        logits = torch.zeros(1, VOCAB_SIZE)
        batch.holder.apply_to_logits(logits, False, None)
        assert bool(logits.any()) is forced


def test_an_empty_list_of_rows_leaves_the_budget_for_the_next_step():
    batch = _batch_of_one([], budget=1)
    batch.holder.update_state([], None)
    logits = torch.zeros(1, VOCAB_SIZE)
    assert not batch.holder.apply_to_logits(logits, False, None).any()
    batch.holder.update_state([[THOUGHT]], None)
    assert batch.holder.apply_to_logits(logits, False, None).any()


# Rule 7: work only when due.


class _UnreadTokens(list):
    """Output tokens that may be counted but not read."""

    def _refuse(self, *args):
        raise AssertionError("output tokens were read before a limit was due")

    __getitem__ = __iter__ = __contains__ = __reversed__ = index = count = _refuse


@pytest.mark.parametrize("limits", [{"budget": 50}, {"close_len": 50}], ids=str)
def test_a_step_before_the_limit_reads_no_token_and_changes_no_logit(limits):
    batch = _batch_of_one([], **limits)
    logits = torch.zeros(1, VOCAB_SIZE)
    version = logits._version
    for k in range(50):
        batch.holder.update_state([_UnreadTokens(thoughts(k))], [[]])
        assert batch.holder.apply_to_logits(logits, False, [[]]) is logits
    assert logits._version == version
    with pytest.raises(AssertionError, match="were read"):
        batch.holder.update_state([_UnreadTokens(thoughts(50))], [[]])


def test_a_request_without_limits_is_not_tracked():
    batch = _batch_of_one([])
    assert not batch.holder.has_tracked_requests()
    assert generate([], 5) == thoughts(5)


def test_a_request_without_limits_takes_the_place_of_one_with_limits():
    batch = _batch_of_one([], close_len=0)
    params: Any = SimpleNamespace(thinking_token_budget=None, _reasoning_close_len=None)
    update = BatchUpdate(1, removed=(), added=[(0, params, [THINK], [])], moved=())
    batch.holder.sync_batch(update)
    assert not batch.holder.has_tracked_requests()


# Engines whose config says less.


@pytest.mark.parametrize("end_token_ids", [[], None])
def test_an_engine_without_an_end_marker_forces_nothing(end_token_ids):
    config = SimpleNamespace(
        reasoning_start_token_ids=[THINK], reasoning_end_token_ids=end_token_ids
    )
    holder = ThinkingBudgetStateHolder(config, 1, 0, torch.device("cpu"), False)
    params: Any = SimpleNamespace(thinking_token_budget=0, _reasoning_close_len=0)
    holder.sync_batch(BatchUpdate(1, (), [(0, params, [THINK], [])], ()))
    holder.update_state([[]], None)
    logits = torch.zeros(1, VOCAB_SIZE)
    assert not holder.apply_to_logits(logits, False, None).any()


def test_values_that_are_no_integers_and_lists_are_not_taken_for_limits_and_markers():
    config = MagicMock(reasoning_start_token_ids=[THINK], reasoning_end_token_ids=[END])
    holder = ThinkingBudgetStateHolder(config, 2, 0, torch.device("cpu"), False)
    params = MagicMock(thinking_token_budget=1)
    added: list = [(0, params, [], []), (1, MagicMock(), [], [])]
    holder.sync_batch(BatchUpdate(2, (), added, ()))
    holder.update_state([[THINK, THOUGHT], [THINK, THOUGHT]], None)
    logits = holder.apply_to_logits(torch.zeros(2, VOCAB_SIZE), False, None)
    assert logits.nonzero().tolist() == [[0, END]]


def test_with_drafts_there_is_room_for_a_row_of_each_draft_of_a_full_batch():
    num_reqs, num_drafts = 3, 2
    batch = HolderBatch(PLAIN, num_drafts, num_reqs, VOCAB_SIZE)
    full = [Request(PLAIN, [THINK], [], close_len=i) for i in range(num_reqs)]
    batch.update(add=full)
    forced = batch.forced([thoughts(num_drafts)] * num_reqs)
    assert [row[i] for i, row in enumerate(forced)] == [END] * num_reqs
