"""CloudEvents, strict JSON documents, and ids that are made from them."""
