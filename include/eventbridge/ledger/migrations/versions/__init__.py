"""Contains one module per revision; a new one names its predecessor in `down_revision` and becomes `revision.HEAD`."""
