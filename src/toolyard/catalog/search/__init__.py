"""Finding tools by words, offline."""

from toolyard.catalog.search.hit_summary import summarize_description
from toolyard.catalog.search.index import Hit, SearchIndex

__all__ = ["Hit", "SearchIndex", "summarize_description"]
