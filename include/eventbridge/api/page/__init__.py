"""The page: what operators look at in a browser, made on the server, readable without JavaScript."""
