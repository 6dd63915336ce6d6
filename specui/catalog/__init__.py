"""Target/draft pairs as values, and the catalogue (models.yaml) they are read from and added to.

The only room that knows YAML. No network, no model file is opened here.
"""

from specui.catalog.adding import add_pair
from specui.catalog.pairs import (
    SHIPPED,
    BundledFile,
    Cancelled,
    Catalog,
    HubFile,
    LocalFile,
    OnProgress,
    Pair,
    PairFiles,
    Source,
    expanded,
    user_file,
)
from specui.catalog.yaml_lines import Entry, read_list

__all__ = [
    "SHIPPED",
    "BundledFile",
    "Cancelled",
    "Catalog",
    "Entry",
    "HubFile",
    "LocalFile",
    "OnProgress",
    "Pair",
    "PairFiles",
    "Source",
    "add_pair",
    "expanded",
    "read_list",
    "user_file",
]
