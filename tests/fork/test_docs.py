# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the docs say holds on the installed fork."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models.tiny_reasoner.problems import held_out
from tests.answer_reserve_utils import ENGINE_ENV, free_port, serving
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


CLIENT = ROOT / "examples/reasoning/openai_chat_completion_answer_reserve_streaming.py"
ADDRESS = "http://localhost:8000"
CLOSED_BY = ("model", "answer_reserve")
# What a small machine needs, and a reader's does not.
SMALL = {"gpu_memory_utilization": 0.1, "enforce_eager": True, "max_model_len": 512}


def _blocks(language: str, needle: str) -> list:
    found = [b for b in BLOCKS if b.values[0] == language and needle in b.values[1]]
    assert found, f"no {language} example with {needle}"
    return found


def _words(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", " "))


def test_generated_tables_are_up_to_date():
    # In a process of its own, where no other test has registered a parser.
    check = [sys.executable, "-m", "tools.generated_docs", "--check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_edit_says_what_it_adds_and_why_and_when_it_goes():
    for path in sorted(ROOT.glob("vllm/**/*.edit.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        _, *why, goes = docstring.split("\n\n")
        assert why and goes.startswith("Goes when ") and goes.endswith("."), path


@pytest.mark.parametrize(("language", "code"), _blocks("bash", "curl"))
def test_a_curl_example_is_a_valid_request(language, code):
    words = _words(code)
    body = json.loads(words[words.index("-d") + 1])
    request = ChatCompletionRequest.model_validate(body)
    assert request.reasoning_answer_reserve == body["reasoning_answer_reserve"]


@pytest.mark.parametrize(("language", "code"), _blocks("bash", "vllm serve"))
def test_a_serve_example_has_valid_arguments(language, code):
    words = _words(code)
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parser.parse_args(words[words.index("serve") + 2 :])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of the server that the docs start with a server default."""
    ((_, code),) = (b.values for b in _blocks("bash", '"answer_reserve": 0.15'))
    words = _words(code)
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", *words[1:]]
    command += ["--port", str(port), "--gpu-memory-utilization", "0.1"]
    command += ["--enforce-eager", "--max-model-len", "512"]
    env = os.environ | ENGINE_ENV | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    log = tmp_path_factory.mktemp("docs") / "log"
    with serving(command, port, env, log) as address:
        yield address


def _run(command: list[str]) -> str:
    env = os.environ | ENGINE_ENV | {"PYTHONPATH": ""}
    result = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow_test
@pytest.mark.parametrize(("language", "code"), _blocks("bash", "curl"))
def test_a_curl_example_answers(served, language, code):
    words = _words(code.replace(ADDRESS, served))
    (choice,) = json.loads(_run([*words, "--silent", "--show-error"]))["choices"]
    assert choice["message"]["content"].strip().startswith("Answer:")
    assert choice["reasoning_closed_by"] in CLOSED_BY


@pytest.mark.slow_test
@pytest.mark.parametrize(("language", "code"), _blocks("python", "OpenAI("))
def test_a_client_example_prints_an_answer_and_what_closed(served, language, code):
    printed = _run([sys.executable, "-c", code.replace(ADDRESS, served)])
    assert "Answer:" in printed and printed.split()[-1] in CLOSED_BY


@pytest.mark.slow_test
@pytest.mark.parametrize(("language", "code"), _blocks("python", "llm.chat"))
def test_an_offline_example_prints_an_answer_and_what_closed(language, code):
    small = "".join(f", {name}={value}" for name, value in SMALL.items())
    code = code.replace(
        ', reasoning_parser="qwen3"', ', reasoning_parser="qwen3"' + small
    )
    assert small in code
    printed = _run([sys.executable, "-c", code])
    assert "Answer:" in printed and printed.split()[-1] in CLOSED_BY


@pytest.mark.slow_test
def test_the_streaming_client_tells_reasoning_answer_and_cause(served):
    (problem,) = held_out(1, seed=5)
    options = ["--base-url", f"{served}/v1", "--max-tokens", "24"]
    options += ["--answer-reserve", "16", problem.question]
    printed = _run([sys.executable, str(CLIENT), *options])
    reasoning, content = printed.split("[content]")
    assert "[reasoning]" in reasoning and "Answer:" in content
    assert "the answer reserve ended the reasoning" in content.splitlines()[-1]
