"""Who lives in a simulated world: each does its steps one after the other, and writes down what it did and was told."""
