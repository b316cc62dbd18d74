"""The messages of Kafka's protocol, one module per group of APIs: loaded when an API of the group is first asked for.

`responses` has the fields that many responses begin with.
"""
