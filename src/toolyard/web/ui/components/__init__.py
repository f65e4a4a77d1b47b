"""Parts that all pages share: responses, forms, formatting, lists and the navigation."""
