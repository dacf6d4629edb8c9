"""Charts as inline SVG, drawn with the colors of the page's style sheet: light and dark need no second drawing."""
