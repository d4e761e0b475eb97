"""`verl-env build`: compiled once, killed and gone on, found again, refused when it is not what it should be."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import time
import zipfile
from pathlib import Path

import pytest

from compiled import LABEL, SOURCES, build, build_words, can_compile, make_toolkit, make_world, run, wheels_of
from tiny import sha256_of
from verl_env import uv

pytestmark = pytest.mark.skipif(not can_compile, reason="no C compiler, or no Python.h, is here")


@pytest.fixture
def world(tmp_path, serve):
    """Return a function that gives verl-env with a row that names a build, installed."""
    return lambda **options: make_world(tmp_path, serve, **options)


def record_of(tool) -> dict:
    (wheel,) = wheels_of(tool)
    return json.loads((wheel.parent / "record.json").read_text())


def compilers_of(tool) -> list[str]:
    """Return the programs that still work in the folder of a build."""
    found = []
    for place in os.listdir("/proc"):
        try:
            folder = os.readlink(f"/proc/{place}/cwd") if place.isdecimal() else ""
        except OSError:
            continue
        if folder.startswith(str(tool.data / "builds")):
            found.append(place)
    return found


def wait_until(true, child=None):
    """Wait for something that a program is about to do; it must not end before."""
    while not true():
        assert child is None or child.poll() is None, child.communicate()
        time.sleep(0.02)


def test_is_built_labelled_and_recorded(world):
    """The wheel says what it was compiled against, in its name, its metadata and its RECORD; the record says how."""
    tool = world()
    done = build(tool)
    assert 0 == done.code, done.err
    (wheel,) = wheels_of(tool)
    assert f"tiny_ext-1.5+{LABEL}-" in wheel.name
    info = f"tiny_ext-1.5+{LABEL}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"{info}/METADATA").decode()
        rows = list(csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())))
    assert ([f"Version: 1.5+{LABEL}", "Version: of something else"]) == [
        it for it in metadata.splitlines() if it.startswith("Version")
    ]
    assert sorted(names) == sorted(row[0] for row in rows)
    record = record_of(tool)
    assert (sha256_of(wheel), wheel.stat().st_size, ["9.0"]) == (
        record["sha256"],
        record["size"],
        record["architectures"],
    )
    assert ("built", 3, 1) == (record["kind"], record["effort"]["compiled"], record["effort"]["attempts"])
    assert ("13.0.88", "90") == (record["inputs"]["nvcc"], record["inputs"]["variables"]["TINY_SM"])
    assert [] == list((tool.data / "builds").glob("*"))
    assert [f"[{n}/3]" for n in (1, 2, 3)] == [it.split()[0] for it in done.err.splitlines() if "/3]" in it]


def test_installs_by_hash(world, tmp_path):
    """uv takes it by name, label and hash, and what is installed is whole and loads."""
    tool = world()
    assert 0 == build(tool).code
    (wheel,) = wheels_of(tool)
    target = tmp_path / "target"
    wanted = tmp_path / "wanted.txt"
    wanted.write_text(f"tiny-ext==1.5+{LABEL} --hash=sha256:{sha256_of(wheel)}\n")
    words = [uv.executable(), "pip", "install", "-q", "--target", target, "--python", tool.current / "bin/python"]
    run([*words, "--no-index", "--find-links", wheel.parent, "--require-hashes", "-r", wanted])
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tiny_ext; print(tiny_ext.answer)"
    assert "42" == run([tool.current / "bin/python", "-c", program, target]).strip()


def test_same_inputs_find_it_again(world):
    """A second build compiles nothing; another architecture is another wheel."""
    tool = world()
    assert 0 == build(tool).code
    before = wheels_of(tool)[0].stat().st_mtime_ns
    again = build(tool, "--json")
    assert (0, False) == (again.code, again.json["data"]["changed"]), again.err
    assert before == wheels_of(tool)[0].stat().st_mtime_ns
    assert 0 == build(tool, "--arch", "8.6").code
    assert 2 == len(wheels_of(tool))


def test_needs_no_network(world, tmp_path):
    """With its files in a folder, no index is asked; `--collect` brings them there, without an environment."""
    tool = world()
    carried = tmp_path / "carried"
    done = tool("build", "tiny-ext", "--row", "tiny", "--collect", carried, "--json")
    assert 0 == done.code, done.err
    assert (0, ["tiny_ext-1.5.tar.gz", "tiny_tool-1.0-py3-none-any.whl"]) == (done.code, done.json["data"]["files"])
    tool.index.stop()
    assert 0 == build(tool, "--find-links", carried).code
    assert 1 == len(wheels_of(tool))


def test_killed_and_gone_on(world, tmp_path):
    """Killed in the middle, no compiler stays; the same command compiles only the rest."""
    tool = world()
    gate = tmp_path / "gate"
    child = tool.start(*build_words(tool), TINY_GATE=str(gate))
    wait_until(lambda: list((tool.data / "builds").glob("*/source/*/a.o")), child)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    wait_until(lambda: not compilers_of(tool))
    assert [] == wheels_of(tool)
    gate.touch()
    done = build(tool)
    assert 0 == done.code, done.err
    assert ["[1/2]", "[2/2]"] == [it.split()[0] for it in done.err.splitlines() if "/2]" in it]
    assert 2 == record_of(tool)["effort"]["attempts"]


def test_ended_by_the_user(world, tmp_path):
    """Ctrl-C ends the compilers too, and says so in the usual way."""
    tool = world()
    child = tool.start(*build_words(tool), TINY_GATE=str(tmp_path / "gate"))
    wait_until(lambda: list((tool.data / "builds").glob("*/source/*/a.o")), child)
    child.send_signal(signal.SIGINT)
    done = tool.finish(child)
    assert (130, []) == (done.code, wheels_of(tool))
    wait_until(lambda: not compilers_of(tool))


def test_two_builders(world, tmp_path):
    """One builds, the other waits and finds its wheel."""
    tool = world()
    gate = tmp_path / "gate"
    first = tool.start(*build_words(tool, "--json"), TINY_GATE=str(gate))
    wait_until(lambda: list((tool.data / "builds").glob("*/source/*/a.o")), first)
    second = tool.start(*build_words(tool, "--json"), TINY_GATE=str(gate))
    impatient = build(tool, "--wait", "0.2")
    assert (13, True) == (impatient.code, "still at work" in impatient.err), impatient.err
    gate.touch()
    one, two = tool.finish(first), tool.finish(second)
    assert (0, 0) == (one.code, two.code), one.err + two.err
    assert [True, False] == [it.json["data"]["changed"] for it in (one, two)]


def test_failing_compile_says_why(world):
    """The error that the compiler gave comes last, the log has all of it, and nothing is stored."""
    tool = world(sources=SOURCES | {"b.c": "int other(void) { return not_there; }\n"})
    done = build(tool, "--json")
    assert (6, []) == (done.code, wheels_of(tool))
    (error,) = done.json["errors"]
    assert "build" == error["code"]
    assert "failed after 1 of 3 files" in error["message"]
    assert "not_there" in error["details"][-1]
    assert "error:" in error["details"][-1]
    log = error["details"][0].removeprefix("log: ")
    assert "[1/3]" in Path(log).read_text()


def test_too_little_memory(world):
    """Compilers that the kernel killed are started again, fewer beside each other, down to one."""
    tool = world()
    done = build(tool, "--jobs", "4", TINY_HUNGRY="1")
    assert 0 == done.code, done.err
    said = [it.split("going on with ")[1] for it in done.err.splitlines() if "going on" in it]
    assert ["2 compilers beside each other", "one compiler at a time"] == said
    effort = record_of(tool)["effort"]
    assert (3, 1) == (effort["attempts"], effort["jobs"])


def test_tampered_wheel_is_refused(world):
    """A wheel that is not what its record says is not used again."""
    tool = world()
    assert 0 == build(tool).code
    (wheel,) = wheels_of(tool)
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    done = build(tool)
    assert (6, True) == (done.code, "was changed after it was stored" in done.err), done.err


def test_wrong_files_are_refused(world, tmp_path):
    """A source of another hash is not unpacked, wherever it lies."""
    tool = world()
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried" / "tiny_ext-1.5.tar.gz").write_bytes(b"something else")
    done = build(tool, "--find-links", tmp_path / "carried")
    assert (5, True) == (done.code, "is another file than the one that is pinned" in done.err), done.err
    assert [] == list((tool.data / "builds").glob("*/source*"))


@pytest.mark.parametrize(
    ("words", "more", "code", "said"),
    [
        pytest.param([], {"CXX": "no-such-compiler"}, 11, "no C++ compiler is here: `no-such-compiler`", id="compiler"),
        pytest.param(["--arch", "12.0"], {}, 2, "cannot be compiled for 12.0", id="an architecture it does not know"),
        pytest.param(["--arch", "hopper"], {}, 2, "is no compute capability", id="no architecture"),
        pytest.param(["--jobs", "0"], {}, 2, "is no number of compilers", id="no jobs"),
        pytest.param(["--find-links", "nowhere"], {}, 2, "no folder at", id="no folder"),
        pytest.param(["--wheel", "x.whl"], {}, 2, "--wheel and --sha256 go together", id="a wheel without a hash"),
    ],
)
def test_what_cannot_be_done_is_said_before(world, words, more, code, said):
    """Each with its exit code, before anything is fetched or written."""
    tool = world()
    tool.index.asked.clear()
    done = build(tool, *words, **more)
    assert (code, True) == (done.code, said in done.err), done.err
    assert ([], False) == (tool.index.asked, (tool.data / "builds").exists())


def test_a_wheel_that_does_not_load_is_refused(world):
    """What compiles and cannot be loaded is not stored; the loader's own words are shown."""
    tool = world(sources={name: text for name, text in SOURCES.items() if name != "c.c"})
    done = build(tool)
    assert (6, [], True) == (done.code, wheels_of(tool), "undefined symbol: another" in done.err), done.err


def test_code_for_another_gpu_is_refused(world):
    """A build that ignored the architectures that it was given is not stored."""
    tool = world(sources=SOURCES | {"a.c": SOURCES["a.c"].replace("ARCHITECTURE", "80")})
    done = build(tool)
    assert (6, [], True) == (done.code, wheels_of(tool), "has no code for 9.0" in done.err), done.err
    assert "it has code for 8.0" in done.err


def adopting(tool, wheel, *words, sha256=None):
    """Adopt a wheel."""
    return build(tool, "--wheel", wheel, "--sha256", sha256 or sha256_of(wheel), *words)


@pytest.fixture
def published(world, tmp_path):
    """Return verl-env with an empty wheelhouse, and a wheel that suits its row."""
    tool = world()
    assert 0 == build(tool).code
    (wheel,) = wheels_of(tool)
    shutil.copy(wheel, tmp_path)
    shutil.rmtree(tool.data / "wheelhouse")
    return tool, tmp_path / wheel.name


def test_adopts_a_wheel(published):
    """A wheel that somebody else compiled is stored as it is, with where it came from, and is there from then on."""
    tool, wheel = published
    tried = adopting(tool, wheel, "--dry-run", "--json").json["data"]
    assert (False, []) == (tried["changed"], wheels_of(tool))
    done = adopting(tool, wheel)
    assert 0 == done.code, done.err
    record = record_of(tool)
    assert ("adopted", sha256_of(wheel), ["9.0"], None) == (
        record["kind"],
        record["sha256"],
        record["architectures"],
        record["inputs"],
    )
    assert "is there already" in adopting(tool, wheel).out


def test_adopts_from_a_server(published):
    """The same, fetched; a login in the URL is nowhere in the record."""
    tool, wheel = published
    shutil.copy(wheel, tool.index.folder)
    url = f"http://reader:s3cret@{tool.index.host}/files/{wheel.name}"
    assert 0 == adopting(tool, url, sha256=sha256_of(wheel)).code
    record = record_of(tool)
    assert (wheel.name, False) == (record["file"], "s3cret" in json.dumps(record))


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        pytest.param("tiny_ext-1.5+cu130torch2.10-{tags}", 6, "it was compiled for torch 2.10", id="torch"),
        pytest.param("tiny_ext-1.5+cu128torch2.11-{tags}", 6, "it was compiled for CUDA 128", id="CUDA"),
        pytest.param("tiny_ext-1.6-{tags}", 6, "the row names tiny-ext 1.5", id="version"),
        pytest.param("tiny_ext-1.5-cp27-cp27m-linux_x86_64.whl", 6, "are not for Python", id="Python"),
        pytest.param("tiny_ext.whl", 6, "is not a wheel's name", id="no wheel"),
    ],
)
def test_does_not_adopt(published, name, code, said):
    """What does not suit is refused with the reason, and not stored."""
    tool, wheel = published
    other = wheel.with_name(name.format(tags=wheel.name.split("-", 2)[2]))
    shutil.copy(wheel, other)
    done = adopting(tool, other)
    assert (code, True, []) == (done.code, said in done.err, wheels_of(tool)), done.err


def test_does_not_adopt_another_file(published):
    """The hash that was named decides; so do the GPUs."""
    tool, wheel = published
    done = adopting(tool, wheel, sha256="0" * 64)
    assert (5, True) == (done.code, "is another file than the one whose hash was named" in done.err), done.err
    done = adopting(tool, wheel, "--arch", "12.0")
    assert (6, True) == (done.code, "it has code for 9.0, and not for 12.0" in done.err), done.err
    assert 2 == adopting(tool, wheel, sha256="banana").code
    assert 2 == adopting(tool, wheel.with_name("nowhere-1.5-py3-none-any.whl"), sha256="0" * 64).code
    assert [] == wheels_of(tool)


def test_a_place_that_cannot_be_written(world):
    """What the file system refuses is an error of its own, before and after compiling; nothing is stored."""
    tool = world()
    (tool.data / "builds").write_text("in the way")
    done = build(tool)
    assert (6, True, []) == (done.code, "cannot be written" in done.err, wheels_of(tool)), done.err
    (tool.data / "builds").unlink()
    (tool.data / "wheelhouse").write_text("in the way")
    done = build(tool)
    assert (6, True) == (done.code, "cannot be written" in done.err), done.err
    (tool.data / "wheelhouse").unlink()
    done = build(tool)
    assert (0, False) == (done.code, "/3]" in done.err), done.err


def test_toolkit_of_another_minor(world, tmp_path):
    """Never a toolkit of another minor than the one that the build names."""
    tool = world()
    tool.toolkit = make_toolkit(tmp_path / "newer", "13.2.10")
    done = build(tool)
    assert (11, True) == (done.code, "is CUDA 13.2.10, and tiny-ext is compiled with 13.0" in done.err), done.err


def test_no_environment_no_build(world):
    """A wheel is compiled against an environment's torch; without one, the way to it is named."""
    tool = world()
    done = tool("build", "flash-attn", "--row", "verl091-vllm024-cu130", "--arch", "9.0")
    assert (12, True) == (done.code, "verl-env install --row verl091-vllm024-cu130" in done.err), done.err


def test_dry_run_and_listing(world):
    """What would be done, and what there is."""
    tool = world()
    planned = build(tool, "--dry-run", "--json").json["data"]
    assert (False, ["9.0"], LABEL) == (
        planned["changed"],
        planned["inputs"]["architectures"],
        LABEL if planned["inputs"]["target"]["torch"] == "2.11.0+cu130" else "",
    )
    assert "the wheelhouse is empty" in tool("build", "--row", "tiny").out
    assert 0 == build(tool).code
    listed = tool("build", "--row", "tiny", "--json").json["data"]
    assert [planned["key"]] == [it["record"]["key"] for it in listed["wheels"]]
    unknown = tool("build", "apex", "--row", "tiny")
    assert (2, True) == (unknown.code, "it names tiny-ext" in unknown.err)
