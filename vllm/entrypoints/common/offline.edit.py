# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""`LLM.chat` says that its prompts come from the chat template.

Once rendered, a chat looks like a raw prompt, which no default applies to.

Goes when upstream has such a default.
"""

from tools.fork.edits import after_import, before_statement

with after_import("collections.abc"):
    from copy import copy


class OfflineInferenceMixin:
    def _add_chat_requests(self):
        with before_statement(returns="self._render_and_add_requests"):
            # On copies: the caller may use the same for raw prompts.
            seq_params = [copy(params) for params in seq_params]
            for params in seq_params:
                if isinstance(params, SamplingParams):
                    params._from_chat_template = True
