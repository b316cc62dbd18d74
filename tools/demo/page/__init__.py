"""What the demo showed, as one HTML file that loads nothing: figures, checks, drawings."""
