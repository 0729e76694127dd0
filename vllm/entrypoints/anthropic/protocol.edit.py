# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_answer_reserve` on Messages requests, beside `thinking`.

A Messages request becomes a chat request, which has only what was declared.

Goes when upstream has `reasoning_answer_reserve` on Messages.
"""

from tools.fork.edits import (
    after_def,
    after_field,
    after_import,
    before_statement,
    merge_import,
)

with merge_import():
    from vllm.entrypoints.generate.base.protocol import refuse_misplaced_answer_reserve
with after_import("vllm.entrypoints.generate.base.protocol"):
    from vllm.sampling_params import (
        ReasoningAnswerReserve,
        check_reasoning_answer_reserve,
    )
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class AnthropicMessagesRequest:
    with after_field("watermarking"):
        reasoning_answer_reserve: ReasoningAnswerReserve = None

    def apply_return_mm_kwargs_alias():
        with before_statement(returns=True):
            if isinstance(data, dict):
                refuse_misplaced_answer_reserve(data)

    with after_def("validate_thinking_budget"):

        @model_validator(mode="after")
        def validate_answer_reserve(self) -> "AnthropicMessagesRequest":
            check_reasoning_answer_reserve(
                self.reasoning_answer_reserve,
                self.max_tokens,
                min_tokens=0,
                kv_transfer_params=self.kv_transfer_params,
            )
            return self


class AnthropicDelta:
    with after_field("stop_sequence"):
        # vLLM: what closed the last reasoning block, where the request limits it.
        reasoning_closed_by: ReasoningClosedBy | None = None


class AnthropicMessagesResponse:
    with after_field("ec_transfer_params"):
        reasoning_closed_by: ReasoningClosedBy | None = Field(
            default=None,
            description=(
                "What closed the last reasoning block, where the request limits it."
            ),
        )
