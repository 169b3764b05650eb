"""`make bench-match`: how fast events are matched, beside Event Ruler, in one table."""
