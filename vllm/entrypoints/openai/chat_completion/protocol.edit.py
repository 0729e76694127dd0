# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_answer_reserve` on chat completion requests.

What a client may set is declared here.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import (
    after_def,
    after_field,
    after_import,
    after_statement,
    at_start,
    bind_return,
    merge_import,
)

with merge_import():
    from vllm.entrypoints.generate.base.protocol import refuse_misplaced_answer_reserve
with merge_import():
    from vllm.sampling_params import (
        ReasoningAnswerReserve,
        check_reasoning_answer_reserve,
        refuse_beam_search_reserve,
    )
with after_import("vllm.utils"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class ChatCompletionRequest:
    with after_field("thinking_token_budget"):
        reasoning_answer_reserve: ReasoningAnswerReserve = None

    with after_def("extract_structured_outputs"):

        @model_validator(mode="after")
        def validate_answer_reserve(self):
            max_tokens = self.max_completion_tokens
            check_reasoning_answer_reserve(
                self.reasoning_answer_reserve,
                self.max_tokens if max_tokens is None else max_tokens,
                self.min_tokens,
                self.kv_transfer_params,
            )
            return self

    def check_cache_salt_support():
        with after_statement(calls="validate_cache_salt"):
            refuse_misplaced_answer_reserve(data)

    def to_beam_search_params(self):
        with at_start():
            refuse_beam_search_reserve(self.reasoning_answer_reserve)

    def to_sampling_params(self):
        with bind_return("params"):
            # `max_tokens` is what the context leaves; the reserve was checked
            # against what the request asked for.
            params.reasoning_answer_reserve = self.reasoning_answer_reserve
            params._from_chat_template = True


class ChatCompletionResponseChoice:
    with after_field("stop_reason"):
        # What closed the last reasoning block, where the request limits it.
        reasoning_closed_by: ReasoningClosedBy | None = None


class ChatCompletionResponseStreamChoice:
    with after_field("stop_reason"):
        # Set on the final chunk only, where the request limits its reasoning.
        reasoning_closed_by: ReasoningClosedBy | None = None


class BatchChatCompletionRequest:
    with after_field("return_token_ids"):
        thinking_token_budget: ThinkingTokenBudget = None
        reasoning_answer_reserve: ReasoningAnswerReserve = None
