"""Charts as inline SVG, drawn with the colours of the page's style sheet: light and dark need no second drawing."""
