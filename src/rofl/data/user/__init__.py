"""Data of a user's own: folders of images, lists of them, arrays, tables."""

from rofl.data.user.data_check import check_user_data
from rofl.data.user.decode import Progress
from rofl.data.user.scan import SUFFIXES, UserSource, load_for_audit, load_user_data
from rofl.data.user.table_encoder import TableEncoder

__all__ = ["SUFFIXES", "Progress", "TableEncoder", "UserSource", "check_user_data", "load_for_audit", "load_user_data"]
