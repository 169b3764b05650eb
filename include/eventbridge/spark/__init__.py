"""Route on Spark: sessions, a server of one's own, and the two ways to hand out slices."""
