"""`triolog forward`: what a small machine has collected, handed on to a Kafka upstream, in order and once."""
