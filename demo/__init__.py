"""A complete environment on this machine, to try EventBridge and to prove that it loses nothing: `make up`, `make
demo`.
"""
