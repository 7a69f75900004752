"""Small sources of texts."""

from text_sources import fdu_folder, newsgroups_folder, pack

__all__ = ["fdu_folder", "newsgroups_folder", "pack"]
