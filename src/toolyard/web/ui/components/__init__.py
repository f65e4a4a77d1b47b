"""Parts that pages share: rendering, forms, Markdown, paging, error pages."""
