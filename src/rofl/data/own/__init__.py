"""Data of a user's own: folders of images, lists of them, arrays, tables."""

from rofl.data.own.check import check
from rofl.data.own.decode import Progress
from rofl.data.own.gather import SUFFIXES, Source, load, load_all

__all__ = ["SUFFIXES", "Progress", "Source", "check", "load", "load_all"]
