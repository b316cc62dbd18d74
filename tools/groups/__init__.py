"""How far groups are in their partitions, and where they would go on elsewhere: for the command line and the console."""
