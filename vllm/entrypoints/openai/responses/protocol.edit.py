# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The limits of reasoning on Responses requests, and what closed it.

What a client may set is declared here; until 0.34.0 that leaves out the budget.

Goes when upstream has `reasoning_answer_reserve`; the budget when 0.33.0 is no longer a
base.
"""

from tools.fork.edits import (
    after_argument,
    after_def,
    after_field,
    after_import,
    after_parameter,
    after_statement,
    bind_return,
    merge_import,
    since,
    until,
)

with merge_import():
    from vllm.entrypoints.generate.base.protocol import refuse_misplaced_answer_reserve
with merge_import():
    from vllm.sampling_params import (
        ReasoningAnswerReserve,
        ThinkingTokenBudget,
        check_reasoning_answer_reserve,
    )
with after_import("vllm.utils"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class ResponsesRequest:
    with since("0.34.0"), after_field("thinking_token_budget"):
        reasoning_answer_reserve: ReasoningAnswerReserve = None
    with until("0.34.0"), after_field("vllm_xargs"):
        thinking_token_budget: ThinkingTokenBudget = None
        reasoning_answer_reserve: ReasoningAnswerReserve = None

    with after_def("extract_structured_outputs"):

        @model_validator(mode="after")
        def validate_answer_reserve(self):
            check_reasoning_answer_reserve(
                self.reasoning_answer_reserve,
                self.max_output_tokens,
                min_tokens=0,
                kv_transfer_params=self.kv_transfer_params,
            )
            return self

    def check_cache_salt_support():
        with after_statement(calls="validate_cache_salt"):
            refuse_misplaced_answer_reserve(data)

    def to_sampling_params(self):
        with (
            until("0.34.0"),
            after_argument("SamplingParams.from_optional", "logit_bias"),
        ):
            thinking_token_budget = self.thinking_token_budget
        with bind_return("params"):
            # `max_tokens` is what the context leaves; the reserve was checked
            # against what the request asked for.
            params.reasoning_answer_reserve = self.reasoning_answer_reserve
            params._from_chat_template = True


class ResponsesResponse:
    with after_field("ec_transfer_params"):
        reasoning_closed_by: ReasoningClosedBy | None = Field(
            default=None,
            description=(
                "What closed the last reasoning block, where the request limits it."
            ),
        )

    def from_request():
        with after_parameter("ec_transfer_params"):
            reasoning_closed_by: ReasoningClosedBy | None = None
        with after_argument("cls", "ec_transfer_params"):
            reasoning_closed_by = reasoning_closed_by
