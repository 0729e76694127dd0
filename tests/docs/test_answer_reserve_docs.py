# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the docs say holds on the installed fork."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.utils.argparse_utils import FlexibleArgumentParser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs/features/reasoning_outputs.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(language, code, id=f"{page.stem}-{number}-{language}")
    for page in PAGES
    for number, (language, code) in enumerate(BLOCK.findall(page.read_text()))
]


def _blocks(language: str, needle: str) -> list:
    found = [b for b in BLOCKS if b.values[0] == language and needle in b.values[1]]
    assert found, f"no {language} example with {needle}"
    return found


def test_generated_tables_are_up_to_date():
    # In a process of its own, where no other test has registered a parser.
    check = [sys.executable, "-m", "tools.generated_docs", "--check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("language", "code"), _blocks("bash", "curl"))
def test_a_curl_example_is_a_valid_request(language, code):
    words = shlex.split(code.replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1])
    request = ChatCompletionRequest.model_validate(body)
    assert request.reasoning_answer_reserve == body["reasoning_answer_reserve"]


@pytest.mark.parametrize(("language", "code"), _blocks("bash", "vllm serve"))
def test_a_serve_example_has_valid_arguments(language, code):
    words = shlex.split(code.replace("\\\n", " "))
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parser.parse_args(words[words.index("serve") + 2 :])


@pytest.mark.parametrize(("language", "code"), _blocks("python", "reserve"))
def test_a_python_example_compiles(language, code):
    compile(code, "example", "exec")
