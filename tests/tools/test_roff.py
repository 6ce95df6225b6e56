from __future__ import annotations

import pytest

from tools.roff import to_roff


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        ("# NAME\n\na word", ".SH NAME\na word\n"),
        ("# SEE ALSO\n\none\n\ntwo", '.SH "SEE ALSO"\none\n.PP\ntwo\n'),
        ("## Part\n\nx", ".SS Part\nx\n"),
        ("one thing. Another one.", "one thing.\nAnother one.\n"),
        ("**-o**, **--output** *F*\n:   said", ".TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIF\\fR\nsaid\n"),
        ("**a**\n:   b\n    more\n**c**\n:   d", ".TP\n\\fBa\\fR\nb more\n.TP\n\\fBc\\fR\nd\n"),
        ("# X\n\n    a 'b' -c \\d", ".SH X\n.RS 4\n.nf\na \\(aqb\\(aq \\-c \\ed\n.fi\n.RE\n"),
        ("the key `a-b` and a-b, --flag", "the key \\fBa\\-b\\fR and a-b, \\-\\-flag\n"),
        (".dot first", "\\&.dot first\n"),
    ],
)
def test_markup_becomes_macros(text: str, roff: str) -> None:
    assert to_roff(text) == roff


def test_long_text_is_wrapped_and_no_line_of_it_is_a_request() -> None:
    lines = to_roff(" ".join(["word ... 'quoted'"] * 40)).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.startswith((".", "'")) for line in lines)


def test_only_ascii_is_taken() -> None:
    with pytest.raises(ValueError, match="not ASCII"):
        to_roff("caf\u00e9")
