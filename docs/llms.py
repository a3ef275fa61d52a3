"""Writes `llms.txt` and a `.md` file next to each HTML page, for readers that are programs.

`llms.txt` lists every page that is written by hand with its title and first sentence (https://llmstxt.org).
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
INCLUDE = re.compile(r"^```\{include\} (\S+)\n(?:.*\n)*?```$", re.MULTILINE)


def source_of(page: Path) -> str:
    """The Markdown of a page, with the files that it includes."""
    return INCLUDE.sub(lambda found: (page.parent / found[1]).resolve().read_text("utf-8"), page.read_text("utf-8"))


def entry(name: str, text: str) -> str:
    """The line of a page in `llms.txt`."""
    title = re.search(r"^# +(.*)$", text, re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text.partition("\n# ")[2] or text.partition("\n")[2])
    first = next((one for one in paragraphs if re.match(r"(?!```)[A-Za-z*`]", one.strip())), "")
    sentence = re.sub(r"\s+", " ", re.sub(r"\*\*|\[([^\]]*)\]\([^)]*\)", r"\1", first)).strip()
    return f"- [{title[1] if title else name}]({name}.md): {sentence.split('. ')[0].rstrip('.')}."


def write_text_versions(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    lines = [
        "# kafkalog",
        "",
        "> Reads, verifies, repairs, indexes and writes Kafka's on-disk log without a broker.",
        "",
    ]
    for page in sorted(HERE.rglob("*.md")):
        name = page.relative_to(HERE).with_suffix("").as_posix()
        if name not in app.env.found_docs:
            continue
        text = source_of(page)
        target = Path(app.outdir, f"{name}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        lines.append(entry(name, text))
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write_text_versions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
