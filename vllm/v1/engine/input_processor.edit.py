# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Where the answer reserve closes, once the prompt and the markers are known.

`max_tokens` may reach past the context, and a reserve counts from where output ends.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import (
    after_def,
    after_import,
    after_statement,
    before_import,
    before_statement,
)

with before_import("vllm.v1.kv_hints"):
    from vllm.v1.engine.answer_reserve import (
        resolve_answer_reserve,
        validate_answer_reserve,
    )


class InputProcessor:
    with after_def("apply_watermarking"):

        def validate_answer_reserve(self, params: SamplingParams) -> None:
            """Refuse a reserve that this engine cannot honour.

            A server calls it as well before it begins to stream, while it can
            still answer with an error status.

            Raises:
                VLLMValidationError: See `vllm.v1.engine.answer_reserve`.

            """
            validate_answer_reserve(params, self.vllm_config)

    def _validate_params(self):
        with after_statement(tests="params.thinking_token_budget"):
            self.validate_answer_reserve(params)

    def process_inputs(self):
        with before_statement(calls="sampling_params.update_from_generation_config"):
            resolve_answer_reserve(sampling_params, prompt_len, self.vllm_config)
