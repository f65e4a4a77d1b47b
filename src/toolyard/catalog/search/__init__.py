"""Full-text search over tool definitions, in memory and with the standard library only.

Imports nothing of Toolyard but the catalogue's types. Start reading at ``index.SearchIndex``; a search runs
``query`` (parsing), ``index_view`` (visible documents and ranking) and ``postings`` (term weights and bit
counters) in that order.
"""

from toolyard.catalog.search.index import Hit, SearchIndex, summarize_description

__all__ = ["Hit", "SearchIndex", "summarize_description"]
