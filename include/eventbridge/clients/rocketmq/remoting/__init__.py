"""A self-contained client of Apache RocketMQ's remoting protocol: routes, offsets, ranges, sends.

It imports nothing from the rest of EventBridge. Calls block, with timeouts. LZ4 and Zstandard bodies need pyarrow.
"""
