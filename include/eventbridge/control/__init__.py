"""What operators change: overrides, releases, tokens, published events and rules; and what they try first."""
