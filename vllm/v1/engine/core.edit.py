# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The default of the answer reserve holds for a frontend that does not know it.

The Rust frontend sends no default, and the engine is what all frontends share.

Goes when upstream has such a default.
"""

from tools.fork.edits import after_import, after_statement

with after_import("vllm.v1.engine"):
    from vllm.v1.engine.answer_reserve import resolve_answer_reserve


class EngineCore:
    def preprocess_add_request(self):
        with after_statement(assigns="req"):
            params = req.sampling_params
            # One that knows it has settled it.
            if params is not None and params.reasoning_answer_reserve is None:
                resolve_answer_reserve(params, req.num_prompt_tokens, self.vllm_config)
