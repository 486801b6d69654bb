"""User data: folders of images, manifests, .npz arrays and tables, read into a `Dataset`. May import: core, data.

`source` lists the samples of a path, `decode` reads images, `scan` combines both, `load` makes the data set.
"""

from rofl.data.user.check import DataCheck, check_user_data
from rofl.data.user.decode import Progress
from rofl.data.user.encoders import Encoder
from rofl.data.user.load import load_for_audit, load_user_data
from rofl.data.user.shared_columns import agree_on_columns, count_features, describe_columns, parse_columns
from rofl.data.user.source import SUFFIXES, UserSource, list_samples
from rofl.data.user.table_encoder import TableEncoder
from rofl.data.user.text_encoder import TextEncoder

__all__ = [
    "SUFFIXES",
    "DataCheck",
    "Encoder",
    "Progress",
    "TableEncoder",
    "TextEncoder",
    "UserSource",
    "agree_on_columns",
    "check_user_data",
    "count_features",
    "describe_columns",
    "list_samples",
    "load_for_audit",
    "load_user_data",
    "parse_columns",
]
