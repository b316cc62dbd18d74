"""What is made from the code for readers and shells: tables of keys, manual pages, completion."""
