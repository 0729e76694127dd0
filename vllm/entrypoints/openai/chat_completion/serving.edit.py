# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Refuse a reserve before the response begins; what closed a choice's reasoning.

A stream that has begun can no longer answer with an error status.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import after_argument, after_statement


class OpenAIServingChat:
    def _create_chat_completion(self):
        with after_statement(calls="request.to_sampling_params"):
            self.input_processor.validate_answer_reserve(sampling_params)

    # In the stream generator, which vLLM 0.33 has split in two.
    with after_argument("ChatCompletionResponseStreamChoice", "stop_reason"):
        reasoning_closed_by = output.reasoning_closed_by

    def chat_completion_full_generator(self):
        with after_argument("ChatCompletionResponseChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
