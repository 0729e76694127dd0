# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Refuse a reserve before the response begins; what closed a choice's reasoning.

A stream that has begun can no longer answer with an error status.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import after_argument, after_statement


class OpenAIServingCompletion:
    def _create_completion(self):
        with after_statement(calls="request.to_sampling_params"):
            self.input_processor.validate_answer_reserve(sampling_params)

    def completion_stream_generator(self):
        with after_argument("CompletionResponseStreamChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by

    def request_output_to_completion_response(self):
        with after_argument("CompletionResponseChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
