"""`enginectl help`: of a verb, or of an error id. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl.errors import UsageError
from enginectl.errors_help import ERRORS, explain
from enginectl.options import Format, OutputOption
from enginectl.output import out
from enginectl.verbs import VERBS, nearest

EXAMPLES = ("enginectl help E1203", "enginectl help drain")


def command(
    topic: Annotated[str | None, typer.Argument(metavar="[VERB|ERROR-ID]", help="What to explain.")] = None,
    output: OutputOption = Format.text,
) -> None:
    """Explain an error id or a verb; alone it lists the verbs."""
    from enginectl.group import build, help_lines

    if topic is None:
        out.document("Help", {"verbs": {verb.name: verb.summary for verb in VERBS.values()}})
        return out.text(*help_lines())
    if topic.upper() in ERRORS:
        entry = ERRORS[topic.upper()]
        out.document(
            "ErrorHelp",
            {
                "id": topic.upper(),
                "exit": int(entry.exit),
                "title": entry.title,
                "meaning": entry.meaning,
                "do": entry.do,
            },
        )
        return out.text(*explain(topic.upper()))
    if topic in VERBS:
        found = build(VERBS[topic])
        with found.context_class(found, info_name=f"enginectl {topic}", **found.context_settings) as ctx:
            page = found.get_help(ctx)
        out.document("Help", {"verb": topic, "text": page})
        return out.text(page)
    near = nearest(topic.upper() if topic[:1].upper() == "E" and topic[1:].isdigit() else topic, [*VERBS, *ERRORS])
    raise UsageError(
        f"no help on {topic!r}" + (f"; did you mean {near!r}?" if near else ""),
        try_=["enginectl --help", f"error ids: {', '.join(ERRORS)}"],
    )
