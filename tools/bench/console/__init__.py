"""What a console costs, and how soon it shows something."""
