"""One file a revision. A new one copies the last, names it in `down_revision`, and becomes `revision.HEAD`."""
