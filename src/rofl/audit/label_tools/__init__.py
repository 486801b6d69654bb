"""Suspects to and from the tools that people label with: Label Studio, CVAT, FiftyOne and cleanlab's Datalab.

`export` puts the suspects into a folder for one of them, `reviews` reads what people decided there. Each tool has a
module that writes its files and reads them back; docs/label-tools.md says how a reviewer uses them.
"""

from rofl.audit.label_tools.export_suspects import TOOLS, Tool, export_suspects
from rofl.audit.label_tools.reviews import read_review

__all__ = ["TOOLS", "Tool", "export_suspects", "read_review"]
