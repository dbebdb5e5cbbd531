"""A Markdown page as one HTML file that needs nothing else: tables, plots inside, no scripts, no requests."""

import base64
import re
from pathlib import Path
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; font-size: 13px;
        font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
thead th { border-bottom: 2px solid #888; }
code, pre { font: 12px/1.4 ui-monospace, monospace; background: #f4f4f4; }
pre { padding: .6rem; overflow-x: auto; }
img { max-width: 100%; }
"""
COMMENT = re.compile(r"<!--.*?-->", re.S)


def to_html(markdown: str, folder: Path, title: str) -> str:
    """The page with the PNG files of `folder` that it shows inside it.

    HTML in the text is shown, not obeyed; comments are left out. A picture that is no PNG file of `folder` becomes its
    description, so that opening the page asks nothing of any server.

    Args:
        markdown: CommonMark with tables.
        folder: what relative names of pictures refer to.
        title: of the window.
    """
    from markdown_it import MarkdownIt

    reader = MarkdownIt("js-default")

    def image(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        source, words = str(token.attrs.get("src", "")), reader.utils.escapeHtml(token.content)
        file = folder / source
        if Path(source).name != source or file.suffix != ".png" or not file.is_file():
            return words
        data = base64.b64encode(file.read_bytes()).decode()
        return f'<img src="data:image/png;base64,{data}" alt="{words}">'

    def heading(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        name = re.sub(r"[^\w]+", "-", tokens[index + 1].content.lower()).strip("-")
        return f'<{tokens[index].tag} id="{name}">'

    reader.add_render_rule("image", image)
    reader.add_render_rule("heading_open", heading)
    body = reader.render(COMMENT.sub("", markdown))
    head = f'<meta charset="utf-8">\n<title>{reader.utils.escapeHtml(title)}</title>\n<style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}</body>\n</html>\n'
