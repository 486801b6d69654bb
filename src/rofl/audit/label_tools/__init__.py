"""Exchange of suspects with labelling tools: Label Studio, CVAT, FiftyOne and cleanlab's Datalab.

`export_suspects` writes the suspects into a folder for one of them, and `reviews` reads the decisions of the reviewers.
Each tool has a module that writes its files and reads them back. docs/label-tools.md explains how to use them.
"""

from rofl.audit.label_tools.export_suspects import TOOLS, Tool, export_suspects
from rofl.audit.label_tools.reviews import read_review

__all__ = ["TOOLS", "Tool", "export_suspects", "read_review"]
