"""Whatever is given to the readers: a list, or one error of ours; and patches come back."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from verl_env.capture.build_needs import UnreadableError, needs_of
from verl_env.capture.compare import compare
from verl_env.capture.nearest import nearest_rows, node_of
from verl_env.capture.recognise import read_text
from verl_env.environment.unified_diff import apply_diff, make_diff, split_patch
from verl_env.errors import VerlEnvError
from verl_env.lock.captured import Captured, GitPackage, PatchedFile
from verl_env.lock.coherence import find_incoherences
from verl_env.lock.lockfile import SCHEMA, Lock, Table, parse_lock, render_lock, sealed
from verl_env.matrix.pins import Pin

NAMES = ["list.txt", "uv.lock", "pylock.toml", "environment.yml", "report.txt", "install.sh"]
WORDS = st.sampled_from(
    ["torch", "vllm==0.8.5", "==", "[pip3] torch==2.6.0+cu124", "[conda] torch 2.6.0 pypi_0 pypi", "-r x", "-e .",
     "PyTorch version: ", "GPU 0: NVIDIA H100", "CUDA available: True", "dependencies:", "  - pip:", "    - torch==1",
     "  - python=3.12=x", "pip install ", "&& pip install vllm", "'", '"', "\\", "#egg=", "git+https://h/x@", "@ file:///",
     "[[package]]", 'name = "x"', "version = 1", "[[packages]]", 'lock-version = "1.0"', "source = {", "https://[",
     "--hash=sha256:", "NVIDIA-SMI", "===== ls", "0, NVIDIA H200, 580.1.1, 9.0, x", "Package Version", "torch 2.6.0",
     "[{", '"name": ', "@EXPLICIT", "1e999", "9" * 400, "\u0130", "\x0c", "\x85", "%s", "2.6.0+cu124torch2.4"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(WORDS, st.text(max_size=12)), max_size=30).map(" ".join),
    st.lists(st.one_of(WORDS, st.text(max_size=12)), max_size=30).map("\n".join),
)


@settings(deadline=None)
@given(text=TEXTS, name=st.sampled_from(NAMES))
def test_readers_give_a_list_or_one_error(text, name):
    """No reader ends in a traceback, and what it reads can be judged."""
    try:
        found = read_text(text, name)
    except VerlEnvError:
        return
    assert all(it.name == it.name.lower() and it.name for it in found.packages)
    find_incoherences(tuple(it.package for it in found.packages), python=None)


@settings(deadline=None)
@given(text=TEXTS, name=st.sampled_from(NAMES))
def test_what_is_read_can_be_compared(shipped, text, name):
    """Whatever was understood has a nearest row or none, and equals itself."""
    try:
        found = read_text(text, name)
    except VerlEnvError:
        return
    nearest_rows(found, shipped)
    node_of(found, shipped.facts)
    assert () == compare(found, found, shipped.facts)


@settings(deadline=None)
@given(secret=st.text(string.ascii_letters + string.digits, min_size=12, max_size=20).map("Zq9".__add__))
@pytest.mark.parametrize(
    "line",
    [
        "git+https://user:{}@git.example/x.git@main#egg=x",
        "x @ https://{}@files.example/x-1-py3-none-any.whl",
        "x @ https://files.example/x-1-py3-none-any.whl?token={}",
        "-e git+ssh://git:{}@git.example/x#egg=x",
        "https://{}:x-oauth-basic@files.example/x-1.tar.gz",
        "x @ file:///home/{}/x",
        "/home/{}/x-1.whl",
    ],
)
def test_nothing_secret_is_kept(line, secret):
    """Logins, tokens and home folders do not survive reading."""
    assert secret not in repr(read_text(f"torch==2.6.0\n{line.format(secret)}\n", "list.txt"))


PROJECT = st.sampled_from(
    ["[build-system]\n", "requires = ", "[", "]", '"setuptools>=61"', '"x @ https://h/x.whl"', '"not one"', ", ", "\n",
     "3", "{}", "[[build-system]]\n", "build-system = 1\n", '"wheel; python_version < \'3\'"', "requires", '"', "\x00"]
)  # fmt: skip


@given(text=st.lists(PROJECT | st.text(max_size=5), max_size=12).map("".join))
def test_any_pyproject(text):
    """What a build needs is a list of requirements that can be resolved, or cannot be known."""
    try:
        needs = needs_of(text)
    except UnreadableError:
        return
    assert all(Requirement(it).url is None for it in needs)


LINES = st.text(st.sampled_from("ab \n\r\x0c-+@\\"), max_size=60)


@settings(deadline=None)
@given(before=LINES, after=LINES)
def test_patches_come_back(before, after):
    """A diff applied to what it was made from gives what it was made for."""
    diff = make_diff("a/b.py", before, after)
    if before == after:
        assert diff == ""
        return
    assert after == apply_diff(before, split_patch(diff)["a/b.py"])


@settings(deadline=None)
@given(first=LINES, second=LINES, third=LINES, fourth=LINES)
def test_patches_of_several_files_are_told_apart(first, second, third, fourth):
    """Lines of one file that look like another's header do not split it."""
    if first == second or third == fourth:
        return
    pieces = split_patch(make_diff("x.py", first, second) + make_diff("y.py", third, fourth))
    assert [second, fourth] == [apply_diff(first, pieces["x.py"]), apply_diff(third, pieces["y.py"])]


PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@settings(deadline=None)
@given(
    kind=PLAIN,
    left=st.lists(PLAIN, max_size=3),
    path=PLAIN,
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
)
def test_captured_locks_read_back_equal(kind, left, path, digest):
    """A lock with everything that capture adds is a PEP 751 file, and the same lock when it is read."""
    captured = Captured(
        kind=kind,
        patch="pylock.x.patch",
        patch_sha256=digest,
        patched=(PatchedFile(path=path, package="verl", sha256=digest),),
        git=(GitPackage(name="x", version="1", url="https://git.example/x", commit="0" * 40),),
        left_out=tuple(left),
    )
    pin = Pin(name="torch", version="1", file="torch-1-py3-none-any.whl", size=1, sha256=digest)
    table = Table(
        schema=SCHEMA, digest="", row="captured", title="x", python="3.12", arch="x86_64", imports=(), captured=captured
    )
    urls = {pin.file: f"https://index.example/{pin.file}"}
    lock = sealed(Lock(table=table, pins=(pin,), urls=urls))
    read = parse_lock(render_lock(lock), "pylock.toml")
    assert (lock.table, lock.pins, lock.urls) == (read.table, read.pins, read.urls)
