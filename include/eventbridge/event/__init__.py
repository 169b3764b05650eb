"""CloudEvents, strict JSON documents, and ids derived from them."""
