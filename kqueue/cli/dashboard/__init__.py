"""What the controller sums up, for people: rows of tables, bars, and a screen that follows."""
