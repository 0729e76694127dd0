# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Refuse a reserve before the response begins; what closed a response's reasoning.

A stream that has begun can no longer answer with an error status.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import after_argument, after_statement


class OpenAIServingResponses:
    def _create_responses(self):
        with after_statement(calls="request.to_sampling_params"):
            self.input_processor.validate_answer_reserve(sampling_params)

    def _generate_with_builtin_tools(self):
        with after_statement(assigns="context.request_metrics"):
            context.reasoning_closed_by = res.outputs[0].reasoning_closed_by

    def responses_full_generator(self):
        with after_argument("ResponsesResponse.from_request", "ec_transfer_params"):
            reasoning_closed_by = context.reasoning_closed_by
