"""User data: folders of images, manifests, .npz arrays and tables, read into a `Dataset`. May import: core, data.

`source` lists the samples of a path, `decode` reads images, `scan` combines both, `load` makes the data set.
"""

from rofl.data.user.check import DataCheck, check_user_data
from rofl.data.user.decode import Progress
from rofl.data.user.load import load_for_audit, load_user_data
from rofl.data.user.source import SUFFIXES, UserSource
from rofl.data.user.table_encoder import TableEncoder

__all__ = [
    "SUFFIXES",
    "DataCheck",
    "Progress",
    "TableEncoder",
    "UserSource",
    "check_user_data",
    "load_for_audit",
    "load_user_data",
]
