"""Pins: their digest, their glibc floor, and their text and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import DAY, pins_for
from verl_env import toml
from verl_env.errors import MatrixError
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.matrix.pins import Pin, digest_of, glibc_floor, make_pins, render_pins


@pytest.mark.parametrize(
    ("files", "floor"),
    [
        pytest.param(["a-1-py3-none-any.whl"], None, id="pure Python states none"),
        pytest.param([], None, id="no wheel"),
        pytest.param(["a-1.tar.gz"], None, id="an sdist states none"),
        pytest.param(["a-1-cp312-cp312-manylinux_2_31_x86_64.whl"], "2.31", id="PEP 600"),
        pytest.param(["a-1-cp312-cp312-manylinux1_x86_64.whl"], "2.5", id="PEP 513"),
        pytest.param(["a-1-cp312-cp312-manylinux2010_x86_64.whl"], "2.12", id="PEP 571"),
        pytest.param(["a-1-cp312-cp312-manylinux2014_x86_64.whl"], "2.17", id="PEP 599"),
        pytest.param(["a-1-cp312-cp312-linux_x86_64.whl"], None, id="plain linux states none"),
        pytest.param(["a-1-cp312-cp312-musllinux_1_2_x86_64.whl"], None, id="musl states no glibc"),
        pytest.param(
            ["a-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl"],
            "2.17",
            id="compressed: installs where its lowest does",
        ),
        pytest.param(
            ["a-1-cp38-abi3-manylinux_2_9_x86_64.whl", "b-1-cp38-abi3-manylinux_2_31_x86_64.whl"],
            "2.31",
            id="the highest of several wheels, by number",
        ),
        pytest.param(["a-1-cp312-cp312-manylinux_2_28_aarch64.whl"], "2.28", id="another architecture"),
        pytest.param(["torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"], "2.28", id="local version"),
    ],
)
def test_glibc_floor(files, floor):
    """Computed from platform tags: the lowest of a wheel's tags, the highest of all wheels."""
    assert floor == glibc_floor(tuple(files))


def test_digest_does_not_depend_on_order_or_source():
    """What is installed counts; neither the order of lines nor where a file is fetched from does."""
    pins = pins_for()
    turned = tuple(replace(it, source="somewhere-else") for it in pins.pins[::-1])
    assert pins.header.digest == digest_of(turned, pins.build)


@pytest.mark.parametrize("change", ["name", "version", "file", "size", "sha256"])
@pytest.mark.parametrize("group", ["pins", "build"])
def test_digest_changes_with_every_fact(change, group):
    """Any other name, version, file, size or hash is another digest."""
    pins = pins_for()
    groups = {"pins": pins.pins, "build": pins.build}
    first = groups[group][0]
    other = replace(first, **{change: first.size + 1 if change == "size" else "x" + getattr(first, change)})
    groups[group] = (other, *groups[group][1:])
    assert pins.header.digest != digest_of(groups["pins"], groups["build"])


def test_header_is_computed():
    """Number, bytes, floor and sources follow from the files."""
    head = pins_for().header
    assert (3, 66, "2.28", ("default", "pytorch-cu130")) == (
        head.packages, head.download_bytes, head.glibc, head.sources
    )  # fmt: skip
    assert "a-cp312-x86_64.toml" == head.file_name


def put(folder, text, *, name="a-cp312-x86_64.toml"):
    """Write pins and a row that has them into a matrix folder."""
    for room in ("rows", "pins"):
        (folder / room).mkdir(exist_ok=True)
    row = 'title = "t"\npython = ["3.12"]\narch = ["x86_64"]\n[set]\nverl = "0.9.1"\ntorch = "2.11.0"\n'
    (folder / "rows/a.toml").write_text(row)
    (folder / "pins" / name).write_text(text)


@pytest.mark.parametrize("glibc", [True, False], ids=["a wheel states a glibc", "none does"])
def test_text_and_back(tmp_path, glibc):
    """What is rendered is read back equal, through the matrix folder."""
    pins = pins_for()
    if not glibc:
        pins = make_pins("a", "3.12", "x86_64", pins=(pins.pins[-1],), build=(), made=DAY)
    pins = replace(pins, header=replace(pins.header, installed_bytes=123, installed_files=4))
    put(tmp_path, render_pins(pins))
    entry = load_matrix(tmp_path).entries["a"]
    assert (pins.header,) == entry.pins
    assert pins == load_pins(entry, entry.pins[0])


def test_one_line_a_package():
    """A diff of pins names packages."""
    lines = render_pins(pins_for()).splitlines()
    assert ["antlr4-python3-runtime", "setuptools", "torch", "verl"] == sorted(
        line.split('"')[1] for line in lines if line.startswith("  { name")
    )


def test_changed_pins_are_refused(tmp_path):
    """Pins that were edited do not give their digest; both digests are shown."""
    put(tmp_path, render_pins(pins_for()).replace("a" * 64, "e" * 64))
    entry = load_matrix(tmp_path).entries["a"]
    with pytest.raises(MatrixError, match="were changed after they were made") as raised:
        load_pins(entry, entry.pins[0])
    assert 2 == len(raised.value.details)


def test_every_fault_of_a_matrix_at_once(tmp_path):
    """A pins file that is another's, a row with a bad key and one that is not TOML are reported together."""
    put(tmp_path, render_pins(pins_for()), name="b-cp312-x86_64.toml")
    (tmp_path / "rows/bad-key.toml").write_text('title = "t"\npython = [3.10]\narch = ["x86_64"]\nspeed = 3\n[set]\n')
    (tmp_path / "rows/cut.toml").write_text('title = "t')
    (tmp_path / "rows/Not.An_Id.toml").write_text("")
    (tmp_path / "pins/empty.toml").write_text("")
    with pytest.raises(MatrixError) as raised:
        load_matrix(tmp_path)
    text = "\n".join(raised.value.details)
    for fault in (
        "pins/b-cp312-x86_64.toml: holds the pins of `a-cp312-x86_64.toml`",
        "rows/bad-key.toml: python[0]: expected str, found float `3.1`",
        "rows/bad-key.toml: unknown key `speed`",
        "cut.toml: ",
        "rows/Not.An_Id.toml: a row's id has only",
        "pins/empty.toml: row: required, and missing",
    ):
        assert fault in text, text


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"], ids=["quote", "backslash", "newline"])
def test_names_that_toml_could_misread_are_refused(name):
    """A name is written as it is, so one that could end its string is refused."""
    pin = Pin(name=name, version="1", file="a-1.whl", size=1, sha256="0" * 64)
    with pytest.raises(ValueError, match="not a plain name"):
        render_pins(make_pins("a", "3.12", "x86_64", pins=(pin,), build=(), made=DAY))


def test_every_shipped_pin_is_what_its_header_says(shipped):
    """Digests, counts, sizes and floors of all shipped pins are those of their packages."""
    checked = 0
    for entry in shipped.entries.values():
        for header in entry.pins:
            pins = load_pins(entry, header)
            made = make_pins(
                header.row, header.python, header.arch, pins=pins.pins, build=pins.build, made=header.made
            ).header
            measured = {"installed_bytes": header.installed_bytes, "installed_files": header.installed_files}
            assert header == replace(made, **measured)
            checked += 1
    assert checked >= len(shipped.entries)


def test_rendered_pins_hold_no_url():
    """A hash says what a file is, an index only where to fetch it."""
    text = render_pins(pins_for())
    assert "://" not in text
    assert {"name", "version", "file", "size", "sha256", "source"} >= {
        key for pin in toml.loads(text)["pins"] for key in pin
    }
