"""The page for operators in a browser: rendered on the server, readable without JavaScript."""
