# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A small vLLM, a small fork of it, and the released vLLMs."""

import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.fork import base
from tools.fork.tree import Fork, record_row, sha256

UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/_version.py": "__version__ = version = '1.0'\n"
    "__version_tuple__ = version_tuple = (1, 0)\n",
    "vllm/params.py": "class Params:\n    budget: int = 0\n    # é\n",
    "vllm/state.py": "def state():\n    return 'old'\n",
    "vllm/other.py": "x = 1\r\n",
}

FORK = {
    "vllm/params.edit.py": "from tools.fork.edits import after_field\n\n\n"
    'class Params:\n    with after_field("budget"):\n        reserve: int = 0\n',
    "vllm/state.py": "def state():\n    return 'new'\n",
    "vllm/deep/added.py": "y = 2\n",
}

METADATA = """\
Metadata-Version: 2.4
Name: vllm-tiny
Version: 1.0
Requires-Python: >=3.11
Classifier: Programming Language :: Python :: 3
Requires-Dist: numpy>=1
Requires-Dist: torch==2.0.1+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: torchaudio
Provides-Extra: audio
Requires-Dist: soundfile; extra == "audio"
Requires-Dist: torchcodec; platform_machine != "s390x" and extra == "audio"
Provides-Extra: empty
"""

ENTRY_POINTS = """\
[console_scripts]
vllm = vllm.main:Main

[vllm.general_plugins]
Disk = vllm.plugins:register
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Write text files below a folder, with the newlines they have."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def bases(tmp_path, monkeypatch) -> Path:
    """A bases.toml that knows the small vLLM, on cpu, and its state.py."""
    path = tmp_path / "bases.toml"
    digest = sha256(UPSTREAM["vllm/state.py"].encode())
    path.write_text(
        '[[base]]\ndistribution = "vllm-tiny"\nversion = "1.0"\ndevice = "cpu"\n\n'
        f'[module."vllm/state.py"]\n"vllm-tiny 1.0" = "{digest}"\n'
    )
    monkeypatch.setattr(base, "BASES_FILE", path)
    return path


@pytest.fixture
def fork(tmp_path) -> Fork:
    """The small fork."""
    return Fork(write(tmp_path / "fork", FORK))


@pytest.fixture
def installed(tmp_path, bases) -> Path:
    """The small vLLM, installed beside another distribution."""
    info = "vllm_tiny-1.0.dist-info"
    files = {
        **UPSTREAM,
        f"{info}/METADATA": METADATA,
        f"{info}/entry_points.txt": ENTRY_POINTS,
        "vllm_plugin-1.0.dist-info/RECORD": "vllm_plugin.py,,\r\n",
    }
    rows = [record_row(n, t.encode()) for n, t in files.items() if "plugin-" not in n]
    rows += [["../../bin/vllm", "sha256=x", "9"], [f"{info}/RECORD", "", ""]]
    record = "".join(",".join(row) + "\r\n" for row in rows)
    return write(tmp_path / "site", {**files, f"{info}/RECORD": record})


@pytest.fixture
def wheel(installed, tmp_path) -> Path:
    """The small vLLM as a wheel."""
    path = tmp_path / "vllm_tiny-1.0-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents(installed).items():
            if not name.startswith("vllm_plugin"):
                archive.writestr(name, content)
    return path


@pytest.fixture(scope="session")
def released(tmp_path_factory) -> dict[str, Path]:
    """Unpacked Python files and metadata of each base.

    Of the bases that have one it is the source distribution, which is smaller
    than the wheel and holds more. They are shared: a test that changes one takes
    a copy.
    """
    trees = {}
    for known in base.known_bases():
        if str(known) in trees:
            continue
        root = tmp_path_factory.mktemp("base")
        if known.distribution == "vllm":
            with tarfile.open(base.fetch_sdist(known.version)) as sdist:
                wanted = (".py", ".md", "/PKG-INFO", "/pyproject.toml")
                members = [m for m in sdist.getmembers() if m.name.endswith(wanted)]
                sdist.extractall(root, members, filter="data")
            (root,) = root.iterdir()
        else:
            with zipfile.ZipFile(base.fetch_wheel(known)) as wheel:
                for member in wheel.namelist():
                    if member.endswith((".py", ".dist-info/METADATA", "/RECORD")):
                        wheel.extract(member, root)
        trees[str(known)] = root
    return trees
