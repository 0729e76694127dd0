# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`reasoning_answer_reserve` on Messages, and what closed the reasoning.

Fields pass between Messages and chat by name, one by one.

Goes when upstream has `reasoning_answer_reserve` on Messages.
"""

from tools.fork.edits import (
    after_argument,
    after_statement,
    inside,
)


class AnthropicServingMessages:
    def _build_base_request():
        with after_argument("ChatCompletionRequest", "watermarking"):
            reasoning_answer_reserve = anthropic_request.reasoning_answer_reserve

    def messages_full_converter(self):
        with after_statement(assigns="choice"):
            result.reasoning_closed_by = choice.reasoning_closed_by

    def message_stream_converter(self):
        with after_statement(assigns="state"):
            reasoning_closed_by = None
        with inside(loops="generator"), after_statement(assigns="stop_sequence"):
            reasoning_closed_by = origin_chunk.choices[0].reasoning_closed_by
        with after_statement(assigns="stop_delta"):
            if reasoning_closed_by is not None:
                stop_delta.reasoning_closed_by = reasoning_closed_by
