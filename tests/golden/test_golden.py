"""Runs every script of this folder; `pytest tests/golden --update-golden` rewrites their replies instead."""

from pathlib import Path

import pytest

from tests.golden.notation import parse, render
from tests.golden.runner import play, read_script
from tests.on_store import takes_several_servers

SCRIPTS = [
    pytest.param(path, id=path.stem, marks=[takes_several_servers] * (path.stem == "mongos"))
    for path in sorted(Path(__file__).parent.glob("*.golden"))
]


@pytest.mark.parametrize("path", SCRIPTS)
def test_script(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    play(path, tmp_path / "data", bool(request.config.getoption("--update-golden")))


def test_a_reply_that_differs_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "wrong.golden"
    script.write_text("> {ping: 1}\n{ok: 1.0}\n\n# Wrong on purpose.\n> {ping: 1}\n{ok: 2.0}\n")
    with pytest.raises(AssertionError, match=r"wrong\.golden:5: {ping: 1}"):
        play(script, tmp_path / "data", update=False)


def test_updating_keeps_everything_but_the_replies(tmp_path: Path) -> None:
    script = tmp_path / "new.golden"
    script.write_text('# New.\n\n> {insert: "c",\n>  documents: [{_id: 1}]}\n> {count: "c"}\nold\n')
    play(script, tmp_path / "data", update=True)
    assert script.read_text() == (
        '# New.\n\n> {insert: "c",\n>  documents: [{_id: 1}]}\n{n: 1, ok: 1.0}\n> {count: "c"}\n{n: 1, ok: 1.0}\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{a: 1, b: 1.0, c: NumberLong(1), d: NumberDecimal("1.50"), e: -0.0, f: Infinity, g: -Infinity, h: NaN}',
        '{a: "x\\"y", b: null, c: true, d: [1, [2]], "e.f": {$g: ""}, h: /a\\/b/im}',
        '{a: ISODate("2100-01-01T00:00:00Z"), b: ISODate("2100-01-01T00:00:00.250Z")}',
        "{a: Date(NumberLong(-99999999999999))}",
        '{a: ObjectId("0123456789abcdef01234567"), b: UUID("00112233-4455-6677-8899-aabbccddeeff")}',
        '{a: BinData(0, "AAEC"), b: BinData(5, "AAEC"), c: Timestamp(1, 2), d: MinKey(), e: MaxKey(), f: Code("x")}',
    ],
)
def test_notation_goes_both_ways(text: str) -> None:
    assert render(parse(text)) == text


def test_long_documents_are_broken_into_lines() -> None:
    assert render({"a": [1, 2], "b": "x" * 20}, 20) == '{\n  a: [1, 2],\n  b: "xxxxxxxxxxxxxxxxxxxx",\n}'


@pytest.mark.parametrize("text", ["{a: 1", "{a: b}", "{a: 3000000000}", "{a: <cursor 1>}", "1", "{} {}", "{a: 'x'}"])
def test_golden_parser_refuses_invalid_documents(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(text)


def test_a_line_that_belongs_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="line 3 belongs to no request"):
        read_script("# Comment.\n\n{ok: 1.0}\n")
