"""Finding tools by words, offline."""

from toolyard.catalog.search.hit_summary import brief
from toolyard.catalog.search.index import Hit, SearchIndex

__all__ = ["Hit", "SearchIndex", "brief"]
