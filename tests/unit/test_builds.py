"""Builds, decided: for which GPUs, with how many compilers, under which key; what a log says, what a row may not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import DAY, row_of
from verl_env.builds.adopting import refusals
from verl_env.builds.inputs import Target, adopted_key, inputs_of, key_of
from verl_env.builds.jobs import floor_of, jobs_for
from verl_env.builds.log import COMPILER, DISK, MEMORY, OTHER, failure_in, steps_in
from verl_env.builds.looking import Looked
from verl_env.builds.record import BUILT, SCHEMA, Record, parse_record, render_record, same_torch, why_not
from verl_env.builds.wheel import WheelName
from verl_env.matrix.attention import Attention
from verl_env.matrix.builds import Build, SourceFile, targets_for
from verl_env.matrix.check_builds import build_faults, cuda_of_torch, pinned_builds
from verl_env.matrix.pins import Pin, make_pins

TARGET = Target(python="3.12", machine="x86_64", torch="2.11.0+cu130", cuda="13.0")
TOOL = Pin(name="ninja", version="1.13.2", file="ninja-1.13.2-py3-none-any.whl", size=1, sha256="a" * 64)
BUILD = Build(
    package="flash-attn",
    version="2.8.3",
    sdist=SourceFile(file="flash_attn-2.8.3.tar.gz", size=10, sha256="b" * 64),
    toolkit="13.0",
    architectures=("8.0", "9.0", "10.0", "12.0"),
    job_gb=6.0,
    why="nobody publishes it",
    source="upstream",
    requires=(TOOL,),
    environment={"SM": "{sm}", "LIST": "{architectures}", "PLAIN": "TRUE"},
    imports=("flash_attn",),
    attention=Attention(path="flash_attention_2"),
)
RECORD = Record(
    schema=SCHEMA,
    kind=BUILT,
    key="a" * 20,
    package="flash-attn",
    version="2.8.3+cu130torch2.11",
    file="flash_attn-2.8.3+cu130torch2.11-cp312-cp312-linux_x86_64.whl",
    size=9,
    sha256="c" * 64,
    target=TARGET,
    architectures=("9.0",),
    made="2026-11-30T12:00:00+00:00",
    by="tests",
    glibc="2.32",
    inputs=inputs_of(BUILD, (TOOL,), TARGET, "13.0.88", ("9.0",)),
)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        pytest.param(["9.0", "9.0"], (("9.0",), ()), id="one kind"),
        pytest.param(["12.1", "8.9", "9.0"], (("8.0", "9.0", "12.0"), ()), id="three kinds, in order"),
        pytest.param(["7.0", "8.0"], (("8.0",), ("7.0",)), id="one that nothing serves"),
    ],
)
def test_targets(capabilities, expected):
    """What to compile for, and what cannot be served."""
    assert expected == targets_for(capabilities, BUILD.architectures)


def test_variables_name_the_architectures():
    """Each package has its own way to say them."""
    assert {"SM": "80;100", "LIST": "8.0;10.0", "PLAIN": "TRUE"} == BUILD.variables_for(("8.0", "10.0"))


@pytest.mark.parametrize(
    "changed",
    [
        {"sdist": "e" * 64},
        {"nvcc": "13.0.48"},
        {"architectures": ("8.0", "9.0")},
        {"requires": ("ninja==1.13.1 x",)},
        {"variables": {"A": "1"}},
        {"target": replace(TARGET, torch="2.12.0+cu130")},
        {"target": replace(TARGET, python="3.11")},
        {"target": replace(TARGET, machine="aarch64")},
    ],
    ids=lambda it: next(iter(it)),
)
def test_every_input_is_in_the_key(changed):
    """Another input is another wheel; the same are the same."""
    inputs = RECORD.inputs
    assert key_of(inputs) == key_of(replace(inputs))
    assert key_of(inputs) != key_of(replace(inputs, **changed))
    assert adopted_key("a" * 64, TARGET) != adopted_key("b" * 64, TARGET)


def test_label():
    """What it was compiled against, as a local version label (PEP 440)."""
    assert "cu130torch2.11" == TARGET.label
    assert "cputorch2.13" == replace(TARGET, torch="2.13.0+cpu", cuda=None).label


@pytest.mark.parametrize(
    ("cores", "free_gb", "expected"),
    [
        pytest.param(32, 250, 32, id="as many as cores"),
        pytest.param(32, 100, 14, id="as many as memory holds"),
        pytest.param(2, 3, 1, id="one at least"),
    ],
)
def test_jobs(cores, free_gb, expected):
    """The machine must survive it."""
    assert expected == jobs_for(cores, free_gb * 10**9, 6 * 10**9)
    assert floor_of(10**9) == 600_000_000 < floor_of(100 * 10**9)


NINJA = """[1/3] c++ -MMD -MF /x/api.o.d -c /x/api.cpp -o /x/api.o -DA
warning: -Werror=format is on
[2/3] /cuda/bin/nvcc -Werror -c /x/b.cu -o /x/b.o
FAILED: [code=2] /x/b.o
/cuda/bin/nvcc -Werror -c /x/b.cu -o /x/b.o
/x/b.cu(12): warning: never used
/x/b.cu(14): error: identifier "qq" is undefined
1 error detected in the compilation of "/x/b.cu".
[3/3] /cuda/bin/nvcc -c /x/c.cu -o /x/c.o
/x/c.cu(1): error: another
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
RuntimeError: Error compiling objects for extension
"""


def test_steps_are_read():
    """Each step that ended, with the object that it made."""
    assert [(1, 3, "api"), (3, 3, "c")] == [(it.done, it.total, it.what) for it in steps_in(NINJA)]


@pytest.mark.parametrize(
    ("text", "cause", "last"),
    [
        pytest.param(NINJA, COMPILER, 'error: identifier "qq" is undefined', id="the first file that failed"),
        pytest.param(
            "FAILED: x.o\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", MEMORY, "signal 9", id="killed"
        ),
        pytest.param(
            "c++: fatal error: Killed signal terminated program cc1plus\n", MEMORY, "Killed signal", id="g++ killed"
        ),
        pytest.param("FAILED: x.o\nfatal error: /x.o: No space left on device\n", DISK, "No space left", id="disk"),
        pytest.param(
            "a\nTraceback:\nModuleNotFoundError: No module named 'wheel'\n\n", OTHER, "No module named", id="Python"
        ),
        pytest.param(
            "FAILED: x.o\n/bin/sh: 1: nvcc: command not found\n", COMPILER, "command not found", id="no compiler"
        ),
        pytest.param("all was well, and then nothing\n", OTHER, "and then nothing", id="nothing to see"),
        pytest.param("/usr/bin/ld: x.o: undefined reference to `f'\n", COMPILER, "undefined reference", id="linker"),
    ],
)
def test_the_real_error(text, cause, last):
    """What went wrong first, and not what the back end says about it."""
    failure = failure_in(text)
    assert (cause, True) == (failure.cause, last in failure.lines[-1]), failure


@pytest.mark.parametrize(
    ("target", "capabilities", "glibc", "said"),
    [
        pytest.param(TARGET, ("9.0",), "2.35", None, id="suits"),
        pytest.param(TARGET, (), None, None, id="nothing is known of the node"),
        pytest.param(replace(TARGET, torch="2.11.0"), (), None, None, id="torch without its label"),
        pytest.param(
            replace(TARGET, torch="2.10.0+cu130"), (), None, "torch 2.11.0+cu130, and this is torch 2.10.0", id="torch"
        ),
        pytest.param(replace(TARGET, torch="2.11.0+cu128"), (), None, "this is torch 2.11.0+cu128", id="torch's CUDA"),
        pytest.param(replace(TARGET, python="3.11"), (), None, "Python 3.12, and this is Python 3.11", id="Python"),
        pytest.param(replace(TARGET, machine="aarch64"), (), None, "machine", id="machine"),
        pytest.param(TARGET, ("9.0", "12.0"), None, "compiled for 9.0, and a GPU here is 12.0", id="GPU"),
        pytest.param(TARGET, (), "2.31", "glibc 2.32, and this is 2.31", id="glibc"),
    ],
)
def test_what_suits(target, capabilities, glibc, said):
    """A wheel is used only where it runs."""
    reason = why_not(RECORD, target, capabilities, glibc)
    assert (said is None, True) == (reason is None, (said or "") in (reason or ""))


def test_record_round_trip():
    """What is written reads back; another schema and what is no record do not."""
    assert RECORD == parse_record(render_record(RECORD))
    text = render_record(RECORD)
    wrong = ('"schema": 1', '"schema": 2'), (RECORD.key, "../../../elsewhere"), ('"flash_attn-', '"../flash_attn-')
    for text in ("[]", "{}", "{", *(text.replace(*it) for it in wrong)):
        with pytest.raises(ValueError, match=r"record|Expecting"):
            parse_record(text)
    assert not same_torch("2.11.0+cu130", "2.11.0+cu128")


NAME = WheelName(distribution="flash_attn", version="2.8.3", tags="cp312-cp312-linux_x86_64")
LOOKED = Looked(libraries=1, architectures=("9.0",), glibc="2.14")


@pytest.mark.parametrize(
    ("name", "looked", "said"),
    [
        pytest.param(NAME, LOOKED, None, id="suits"),
        pytest.param(replace(NAME, version="2.8.3+cu13torch2.11cxx11abiTRUE"), LOOKED, None, id="a label that suits"),
        pytest.param(
            replace(NAME, version="2.8.3+cu13torch2.10cxx11abiTRUE"), LOOKED, "for torch 2.10", id="label: torch"
        ),
        pytest.param(replace(NAME, version="2.8.3+cu12torch2.11"), LOOKED, "for CUDA 12", id="label: CUDA"),
        pytest.param(replace(NAME, version="2.8.2"), LOOKED, "the row names flash-attn 2.8.3", id="version"),
        pytest.param(replace(NAME, tags="cp311-cp311-linux_x86_64"), LOOKED, "not for Python 3.12", id="Python"),
        pytest.param(NAME, replace(LOOKED, architectures=("8.0",)), "and not for 9.0", id="GPU"),
        pytest.param(NAME, replace(LOOKED, glibc="2.38"), "needs glibc 2.38", id="glibc"),
    ],
)
def test_adopting(name, looked, said):
    """What somebody else compiled is held against the row and the node."""
    found = refusals(name, looked, BUILD, TARGET, capabilities=("9.0",), glibc="2.35")
    assert (() if said is None else True) == (found if said is None else any(said in it for it in found)), found


def test_adopting_what_is_not_compiled():
    """A wheel without a library is none of these."""
    assert ("it has no compiled library",) == refusals(
        NAME, Looked(libraries=0, architectures=(), glibc=None), BUILD, TARGET, capabilities=(), glibc=None
    )


ROW = row_of(build=(BUILD,))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({}, None, id="whole"),
        pytest.param({"package": "Flash_Attn"}, "write it normalised: flash-attn", id="name"),
        pytest.param({"version": "2.8.3+x"}, "the label is given when it is built", id="label"),
        pytest.param({"version": "2.8.4"}, "is not flash-attn 2.8.4", id="another sdist"),
        pytest.param({"sdist": replace(BUILD.sdist, file="x.zip")}, "only .tar.gz is unpacked", id="zip"),
        pytest.param({"sdist": replace(BUILD.sdist, sha256="b")}, "sha256 of 64 hex digits", id="hash"),
        pytest.param({"toolkit": "12.8"}, "torch is built with CUDA 13.0", id="toolkit"),
        pytest.param({"architectures": ()}, "name those", id="no architecture"),
        pytest.param({"architectures": ("hopper",)}, "not a compute capability: `hopper`", id="architecture"),
        pytest.param({"environment": {"A": "{archs}"}}, "`{archs}` stands for nothing", id="word"),
        pytest.param({"job_gb": 0.0}, "job_gb", id="memory"),
        pytest.param({"imports": ()}, "imports: name a module", id="imports"),
        pytest.param({"why": " "}, "why: say it", id="why"),
        pytest.param(
            {"requires": (replace(TOOL, version="2"),)}, "is no wheel of ninja 2", id="a tool of another version"
        ),
        pytest.param(
            {"requires": (replace(TOOL, file="ninja-1.13.2-py3-none-manylinux2014_aarch64.whl"),)},
            "no wheel of ninja suits Python 3.12 on x86_64",
            id="a tool for another machine",
        ),
    ],
)
def test_faults_of_a_row(changed, said):
    """`matrix check` holds a build together."""
    found = build_faults(replace(ROW, build=(replace(BUILD, **changed),)))
    assert ([] if said is None else True) == (found if said is None else any(said in it for it in found)), found


def test_builds_twice_or_pinned():
    """One package is built once, and not pinned besides."""
    assert ["build: `flash-attn` is there 2 times"] == build_faults(replace(ROW, build=(BUILD, BUILD)))
    pin = Pin(name="flash-attn", version="2.8.3", file="flash_attn-2.8.3-py3-none-any.whl", size=1, sha256="a" * 64)
    pins = make_pins("a", "3.12", "x86_64", pins=(pin,), build=(), made=DAY)
    assert ["build: `flash-attn` is pinned already"] == pinned_builds(ROW, pins)
    assert "13.0" == cuda_of_torch(replace(ROW, set={"torch": "2.11.0"}))
    assert "12.8" == cuda_of_torch(replace(ROW, set={"torch": "2.9.0+cu128"}, cuda="12.9"))
