"""Files of the Hugging Face Hub, through huggingface_hub, its session and its cache.

The only importer of huggingface_hub, which reads HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE itself. Knows
repositories, files, sizes and why a file could not be had; nothing about pairs or models. A token is never part of a
message.
"""

from specui.hub.cache import cache_folder, cached, cached_parts, free_bytes, remove
from specui.hub.download import download
from specui.hub.listing import ListedFile, models_in
from specui.hub.names import quantisation, shards
from specui.hub.remote import RemoteFile, remote_file, remote_files
from specui.hub.search import FoundRepo, search

__all__ = [
    "FoundRepo",
    "ListedFile",
    "RemoteFile",
    "cache_folder",
    "cached",
    "cached_parts",
    "download",
    "free_bytes",
    "models_in",
    "quantisation",
    "remote_file",
    "remote_files",
    "remove",
    "search",
    "shards",
]
