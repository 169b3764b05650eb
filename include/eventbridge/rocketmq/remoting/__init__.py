"""A client of Apache RocketMQ's remoting protocol: routes, offsets, ranges, sends. It stands by itself.

It imports nothing of the rest of EventBridge. Calls block, with time-outs; LZ4 and Zstandard bodies need pyarrow.
"""
