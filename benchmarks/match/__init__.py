"""`make bench-match`: the speed of matching compared with Event Ruler, in one table."""
